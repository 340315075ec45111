"""One partition leaves the log without anybody waiting for it: detached concurrently, then dropped.

The detachment has two halves, between which it waits for all who may be reading the partition. Whoever ends in between,
the next call goes on from there.
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

PATIENCE = 1.0, 10.0
"""Seconds to wait for a lock: at first, and at most as it goes on. Only who attaches partitions may wait for us."""
STATEMENT_SECONDS = 20
_STEPS = {
    "attached": "alter table {table} detach partition {partition} concurrently",
    "pending": "alter table {table} detach partition {partition} finalize",
    "detached": "drop table {partition}",
}


@dataclass(frozen=True)
class Reader:
    """A session that keeps a partition from going, and since when its transaction runs.

    `was_before`: it began before the drop, so the drop has to wait for its end.
    """

    pid: int
    user_name: str | None
    application: str | None
    since: datetime | None
    was_before: bool

    def __str__(self) -> str:
        return f"{self.application or 'a program'} (pid {self.pid}, user {self.user_name})"


@dataclass(frozen=True)
class _State:
    schema: str
    name: str
    state: str
    seconds: float


def go_on(connection: Connection, table: EventsTable) -> bool:
    """Bring the drop that is recorded to its end; False while somebody still reads the partition.

    True when there is none. The connection must be in autocommit mode and outside of a transaction.
    """
    while (state := _state(connection, table)) is not None:
        reader = reader_of(connection, table)
        if state.state == "pending" and reader is not None and reader.was_before:
            return False
        names = {"table": table.identifier, "partition": sql.Identifier(state.schema, state.name)}
        try:
            with _patience(connection, state.seconds):
                connection.execute(sql.SQL(_STEPS[state.state]).format(**names))
        except (
            psycopg.errors.LockNotAvailable,
            psycopg.errors.QueryCanceled,
            psycopg.errors.DeadlockDetected,
        ):
            return False
    connection.execute(statement("log.retention", "end_drop"), {"table": str(table)})
    return True


def reader_of(connection: Connection, table: EventsTable) -> Reader | None:
    """Who keeps the recorded drop from going on, as far as this user may see; the oldest of them."""
    values = {"table": str(table), "name": table.identifier.as_string(connection)}
    return queries.one(connection, Reader, statement("log.retention", "find_readers"), values)


def _state(connection: Connection, table: EventsTable) -> _State | None:
    return queries.one(connection, _State, statement("log.retention", "find_dropping"), {"table": str(table)})


@contextmanager
def _patience(connection: Connection, seconds: float) -> Iterator[None]:
    """Locks are waited for the longer, the longer the drop has been trying: readers may take turns for ever."""
    patience = max(PATIENCE[0], min(seconds / 4, PATIENCE[1]))
    for name, value in (("lock_timeout", patience), ("statement_timeout", STATEMENT_SECONDS)):
        connection.execute("select set_config(%s, %s, false)", (name, f"{value * 1000:.0f}ms"))
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("reset lock_timeout")
            connection.execute("reset statement_timeout")
