"""Seqs for the parts of a catch-up, whose numbers of rows nobody knows before they are read."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pipeline.log.partitions import LAST_SEQ, PARTITION_ROWS
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

BYTES_OF_CHANGE = 16
"""No change takes less of the WAL."""
BETWEEN = 2 * PARTITION_ROWS
"""Seqs before each part, for what is moved before it, whose partitions are made ahead."""


def reserve(
    connection: Connection, source: uuid.UUID, table: EventsTable, spans: Sequence[int], now: int
) -> list[int | None]:
    """The first seq of each part; `spans`: bytes of WAL from where the first worker is to where it begins.

    None for a part whose seqs a jump of the log, which takes the source's clock `now`, might give to other events.

    Nobody else is kept from them: whether they are free, and come next, is asked when a part is stored.
    """
    values = {
        "source": source,
        "table": table.identifier.as_string(connection),
        "sequence": table.sequence.as_string(connection),
    }
    behind = int(queries.value(connection, statement("log.writing.partitioned", "reserve_seqs"), values))
    found = [behind + BETWEEN * number + span // BYTES_OF_CHANGE for number, span in enumerate(spans, 1)]
    return [first if first + BETWEEN < min(now, LAST_SEQ) else None for first in found]
