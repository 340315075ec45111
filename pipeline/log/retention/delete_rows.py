"""Old events that no whole partition holds go row by row: small batches with pauses, so that nobody notices."""

from __future__ import annotations

import time
from collections.abc import Callable

from psycopg import sql

from pipeline.log.retention import policy, preserve_values
from pipeline.log.retention.policy import Trim
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

BATCH = 2_000
"""Events deleted in one transaction."""
SECONDS = 20.0
"""What one call takes at most."""


def trim(connection: Connection, table: EventsTable, what: Trim, keep: float, stopped: Callable[[], bool]) -> int:
    """Delete events that are older than `keep` seconds, the oldest first; returns how many. The next call goes on."""
    deleted, until = 0, time.monotonic() + SECONDS
    below = policy.dropped(connection, table).below
    carried = preserve_values.carried_tables(connection)
    while not stopped() and time.monotonic() < until:
        began = time.monotonic()
        begin = policy.first(connection, what.of, below)
        if begin is None:
            break
        end = _end_of_batch(connection, what, begin.seq)
        upto = _old_upto(connection, what, begin.seq, end, keep)
        if upto is None:
            break
        below = upto + 1
        with connection.transaction():
            policy.record(connection, table, below)
            preserve_values.carry_range(connection, table, what.of, carried, begin.seq, upto)
            query = sql.SQL(statement("log.retention", "delete_events")).format(events=what.of)
            deleted += connection.execute(query, {"first": begin.seq, "upto": upto}).rowcount
        if upto < end or end == what.upto:
            break
        time.sleep(time.monotonic() - began)  # half of the time is for replicas and autovacuum
    return deleted


def _end_of_batch(connection: Connection, what: Trim, begin: int) -> int:
    """The seq of the last event of a batch that begins at a seq: a table from before may have large gaps."""
    query = sql.SQL(statement("log.retention", "end_batch")).format(events=what.of)
    row = connection.execute(query, {"first": begin, "upto": what.upto, "rows": BATCH}).fetchone()
    return int(row[0]) if row and row[0] is not None else what.upto


def _old_upto(connection: Connection, what: Trim, begin: int, end: int, keep: float) -> int | None:
    """The end of those that are old, of a batch from a seq to another; None when already the first is not old."""
    low, high = begin - 1, end
    middle = high
    while low < high:
        last = policy.newest(connection, what.of, middle)
        if last is not None and policy.is_old(connection, last, keep):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low if low >= begin else None
