"""Old events that no whole partition holds go row by row: small batches with pauses, so that nobody notices."""

from __future__ import annotations

import time
from collections.abc import Callable

from psycopg import sql

from pipeline.db import Connection
from pipeline.db import sql as statement
from pipeline.events import retention
from pipeline.events.log import EventsTable
from pipeline.events.retention import Trim

BATCH = 2_000
"""seqs deleted in one transaction."""
SECONDS = 20.0
"""What one call takes at most."""


def trim(connection: Connection, table: EventsTable, what: Trim, keep: float, stopped: Callable[[], bool]) -> int:
    """Delete events that are older than `keep` seconds, the oldest first; returns how many. The next call goes on."""
    deleted, until = 0, time.monotonic() + SECONDS
    below = retention.dropped(connection, table).below
    while not stopped() and time.monotonic() < until:
        began = time.monotonic()
        begin = retention.first(connection, what.of, below)
        upto = None if begin is None else _old_upto(connection, what, begin.seq, keep)
        if begin is None or upto is None:
            break
        below = upto + 1
        with connection.transaction():
            retention.record(connection, table, below)
            query = sql.SQL(statement("events", "delete_events")).format(events=what.of)
            deleted += connection.execute(query, {"first": begin.seq, "upto": upto}).rowcount
        if upto - begin.seq + 1 < BATCH:
            break
        time.sleep(time.monotonic() - began)  # half of the time is for replicas and autovacuum
    return deleted


def _old_upto(connection: Connection, what: Trim, begin: int, keep: float) -> int | None:
    """The end of a batch of old events that begins at a seq; None when already the first is not old."""
    low, high = begin - 1, min(begin + BATCH - 1, what.upto)
    middle = high
    while low < high:
        last = retention.newest(connection, what.of, middle)
        if last is not None and retention.is_old(connection, last, keep):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low if low >= begin else None
