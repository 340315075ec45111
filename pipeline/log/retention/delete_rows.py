"""Delete old events row by row if no whole partition can be dropped: in small batches, with pauses."""

from __future__ import annotations

import time
from collections.abc import Callable

from psycopg import sql

from pipeline.log.retention import policy, preserve_values
from pipeline.log.retention.policy import RowDeletion
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

BATCH = 2_000
"""Events deleted in one transaction."""
SECONDS = 20.0
"""The most seconds that one call takes."""


def delete(
    connection: Connection, table: EventsTable, rows: RowDeletion, keep: float, stopped: Callable[[], bool]
) -> int:
    """Delete events older than `keep` seconds, the oldest first; returns how many. The next call continues."""
    deleted, until = 0, time.monotonic() + SECONDS
    below = policy.dropped(connection, table).below
    preserved = preserve_values.preserved_tables(connection)
    while not stopped() and time.monotonic() < until:
        began = time.monotonic()
        begin = policy.first(connection, rows.of, below)
        if begin is None:
            break
        end = _end_of_batch(connection, rows, begin.seq)
        upto = _old_upto(connection, rows, begin.seq, end, keep)
        if upto is None:
            break
        below = upto + 1
        with connection.transaction():
            policy.record(connection, table, below)
            preserve_values.preserve_range(connection, table, rows.of, preserved, begin.seq, upto)
            query = sql.SQL(statement("log.retention", "delete_events")).format(events=rows.of)
            deleted += connection.execute(query, {"first": begin.seq, "upto": upto}).rowcount
        if upto < end or end == rows.upto:
            break
        time.sleep(time.monotonic() - began)  # half of the time is for replicas and autovacuum
    return deleted


def _end_of_batch(connection: Connection, rows: RowDeletion, begin: int) -> int:
    """Return the seq of the last event of a batch that begins at a seq. A legacy table may have large gaps in seq."""
    query = sql.SQL(statement("log.retention", "end_batch")).format(events=rows.of)
    row = connection.execute(query, {"first": begin, "upto": rows.upto, "rows": BATCH}).fetchone()
    return int(row[0]) if row and row[0] is not None else rows.upto


def _old_upto(connection: Connection, rows: RowDeletion, begin: int, end: int, keep: float) -> int | None:
    """Return the seq of the last old event of the batch from `begin` to `end`; None if even the first is not old."""
    low, high = begin - 1, end
    middle = high
    while low < high:
        last = policy.newest(connection, rows.of, middle)
        if last is not None and policy.is_old(connection, last, keep):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low if low >= begin else None
