"""The lag and the rates of the last hour, from the stored samples."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from pipeline.capture.replication.confirm_rule import IDLE_BYTES, IDLE_SECONDS
from pipeline.operate.lag.model import LATE_SECONDS
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class LagSample:
    """The lag of the log behind the source at one moment. Rates are since the sample before.

    `epoch`: samples of two epochs are not of one history. A value is None if it is not known: the source did not
    answer, or no sample was stored in the minute before.
    """

    at: datetime
    epoch: int | None
    behind_bytes: int | None
    behind_seconds: float | None
    changes_per_second: float | None
    events_per_second: float | None


def read_samples(connection: Connection, source: uuid.UUID) -> list[LagSample]:
    """Return the samples of the last hour, the oldest first."""
    values = {"source": source, "idle_bytes": IDLE_BYTES, "idle_seconds": IDLE_SECONDS + LATE_SECONDS}
    return queries.rows(connection, LagSample, statement("operate.lag", "lag_history"), values)
