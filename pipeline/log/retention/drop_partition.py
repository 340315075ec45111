"""Drop one partition of the log so that no reader or writer waits: detach it concurrently, then drop it.

A concurrent detach has two halves, between which it waits for all sessions that may be reading the partition. If the
process ends in between, the next call continues from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg import sql

from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

LOCK_TIMEOUT = 1.0, 10.0
"""Seconds to wait for a lock, at first and at most. Only a session that attaches partitions may wait for this one."""
STATEMENT_SECONDS = 20
_STEPS = {
    "attached": "alter table {table} detach partition {partition} concurrently",
    "pending": "alter table {table} detach partition {partition} finalize",
    "detached": "drop table {partition}",
}
_END_DROP = """\
update pipeline.retention set dropping = null, dropping_name = null, dropping_since = null
where events_table = %(table)s
"""
"""Record that the partition was dropped."""


@dataclass(frozen=True)
class BlockingSession:
    """A session that prevents a partition from being dropped, and since when its transaction runs.

    `is_older`: its transaction began before the drop, so the drop has to wait for its end.
    """

    pid: int
    user_name: str | None
    application: str | None
    since: datetime | None
    is_older: bool

    def __str__(self) -> str:
        return f"{self.application or 'a program'} (pid {self.pid}, user {self.user_name})"


@dataclass(frozen=True)
class _State:
    schema: str
    name: str
    state: str
    seconds: float


def finish(connection: Connection, table: EventsTable) -> bool:
    """Finish the drop that is recorded; False while a session still reads the partition.

    True when no drop is recorded. The connection must be in autocommit mode and outside of a transaction.
    """
    while (state := _state(connection, table)) is not None:
        session = blocking_session(connection, table)
        if state.state == "pending" and session is not None and session.is_older:
            return False
        names = {"table": table.identifier, "partition": sql.Identifier(state.schema, state.name)}
        try:
            with _lock_timeout(connection, state.seconds):
                connection.execute(sql.SQL(_STEPS[state.state]).format(**names))
        except (
            psycopg.errors.LockNotAvailable,
            psycopg.errors.QueryCanceled,
            psycopg.errors.DeadlockDetected,
        ):
            return False
    connection.execute(_END_DROP, {"table": str(table)})
    return True


def blocking_session(connection: Connection, table: EventsTable) -> BlockingSession | None:
    """Return the oldest session that prevents the recorded drop from continuing, as far as this user may see."""
    values = {"table": str(table), "name": table.identifier.as_string(connection)}
    return queries.one(connection, BlockingSession, statement("log.retention", "find_blocking_session"), values)


def _state(connection: Connection, table: EventsTable) -> _State | None:
    return queries.one(connection, _State, statement("log.retention", "find_drop"), {"table": str(table)})


@contextmanager
def _lock_timeout(connection: Connection, seconds: float) -> Iterator[None]:
    """Wait longer for locks the longer the drop has been trying: readers may follow each other without a gap."""
    lock_timeout = max(LOCK_TIMEOUT[0], min(seconds / 4, LOCK_TIMEOUT[1]))
    for name, value in (("lock_timeout", lock_timeout), ("statement_timeout", STATEMENT_SECONDS)):
        connection.execute("select set_config(%s, %s, false)", (name, f"{value * 1000:.0f}ms"))
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("set lock_timeout = 0")  # the default of every session of the server
            connection.execute("set statement_timeout = 0")
