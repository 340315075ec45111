"""Read the log backwards, to find the last transactions of an epoch."""

from __future__ import annotations

import uuid
from datetime import datetime

from psycopg import sql

from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_FETCH = 5_000


def newest(connection: Connection, table: EventsTable) -> datetime | None:
    """Return when the newest event was committed at the source; None if there is no event."""
    query = sql.SQL(statement("log", "newest_commit")).format(events=table.identifier)
    committed_at: datetime | None = queries.value(connection, query)
    return committed_at


def transactions_since(
    connection: Connection, table: EventsTable, source: uuid.UUID, epoch: int, from_lsn: int, upto_seq: int
) -> set[tuple[int, int]]:
    """Return an epoch's last transactions with commit_lsn >= `from_lsn`: commit_lsn and commit time in µs since 2000.

    `upto_seq` is the epoch's last seq, or a later one that belongs to no other epoch. Reads no further back than
    necessary, since seq is in commit order.
    """
    found: set[tuple[int, int]] = set()
    query = sql.SQL(statement("log", "newest_first")).format(events=table.identifier)
    with connection.transaction(), connection.cursor("newest_first") as cursor:
        cursor.itersize = _FETCH
        cursor.execute(query, {"source": source, "upto": upto_seq})
        for of_epoch, commit_lsn, committed_at in cursor:
            if of_epoch != epoch or commit_lsn is None or commit_lsn < from_lsn:
                break
            found.add((commit_lsn, committed_at))
    return found
