"""Old events that no whole partition holds go row by row: small batches with pauses, so that nobody notices."""

from __future__ import annotations

import time
from collections.abc import Callable

from psycopg import sql

from pipeline.db import Connection
from pipeline.db import sql as statement
from pipeline.events import carrying, retention
from pipeline.events.log import EventsTable
from pipeline.events.retention import Trim

BATCH = 2_000
"""Events deleted in one transaction."""
SECONDS = 20.0
"""What one call takes at most."""


def trim(connection: Connection, table: EventsTable, what: Trim, keep: float, stopped: Callable[[], bool]) -> int:
    """Delete events that are older than `keep` seconds, the oldest first; returns how many. The next call goes on."""
    deleted, until = 0, time.monotonic() + SECONDS
    below = retention.dropped(connection, table).below
    carried = carrying.carried_tables(connection)
    while not stopped() and time.monotonic() < until:
        began = time.monotonic()
        begin = retention.first(connection, what.of, below)
        if begin is None:
            break
        end = _end_of_batch(connection, what, begin.seq)
        upto = _old_upto(connection, what, begin.seq, end, keep)
        if upto is None:
            break
        below = upto + 1
        with connection.transaction():
            retention.record(connection, table, below)
            carrying.carry_range(connection, table, what.of, carried, begin.seq, upto)
            query = sql.SQL(statement("events", "delete_events")).format(events=what.of)
            deleted += connection.execute(query, {"first": begin.seq, "upto": upto}).rowcount
        if upto < end or end == what.upto:
            break
        time.sleep(time.monotonic() - began)  # half of the time is for replicas and autovacuum
    return deleted


def _end_of_batch(connection: Connection, what: Trim, begin: int) -> int:
    """The seq of the last event of a batch that begins at a seq: a table from before may have large gaps."""
    query = sql.SQL(statement("events", "end_batch")).format(events=what.of)
    row = connection.execute(query, {"first": begin, "upto": what.upto, "rows": BATCH}).fetchone()
    return int(row[0]) if row and row[0] is not None else what.upto


def _old_upto(connection: Connection, what: Trim, begin: int, end: int, keep: float) -> int | None:
    """The end of those that are old, of a batch from a seq to another; None when already the first is not old."""
    low, high = begin - 1, end
    middle = high
    while low < high:
        last = retention.newest(connection, what.of, middle)
        if last is not None and retention.is_old(connection, last, keep):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low if low >= begin else None
