"""The sources that the pipeline database knows, each with its epoch."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from datetime import datetime

from pipeline.capture.source import captured_tables
from pipeline.capture.source.captured_tables import CaptureGap
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn


@dataclass(frozen=True)
class KnownSource:
    """A source as it was at the last connection. `since`: when its epoch began; `position`: its staged LSN.

    `gaps`: changes of its tables that the log lacks.
    """

    id: str
    epoch: int
    database: str
    cluster: str
    timeline: int | None
    slot: str
    publications: list[str]
    position: lsn.Shown | None
    since: datetime | None
    gaps: list[CaptureGap] = field(default_factory=list)


def collect(connection: Connection) -> list[KnownSource]:
    """All known sources."""
    found = queries.rows(connection, KnownSource, statement("operate", "known_sources"))
    return [replace(each, gaps=captured_tables.read_gaps(connection, uuid.UUID(each.id))) for each in found]
