"""The status of each consumer, and the statements that change consumers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg.rows import dict_row

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_TABLES_READ = """\
select distinct events_table from pipeline.consumers
where events_table is not null and to_regclass(pipeline.events_relation(events_table)) is not null
order by events_table
"""
"""The events tables beside the default one that consumers read, and that exist."""


@dataclass(frozen=True)
class ConsumerStatus:
    """A row of `pipeline.consumers` with counts, which stop at 100 000; None where they do not apply to its kind.

    `events_table`: what it reads; None is the default one. `routed`: whether a route in force sends changes there.
    `visibility` and `oldest_pending_seconds` are in seconds; `lag` is in seqs, from its position to the newest event.
    """

    id: int
    name: str
    kind: str
    tables: list[str]
    actions: list[str]
    state: str
    events_table: str | None
    group_by: list[str] | None
    collapse: bool
    visibility: float
    max_deliveries: int | None
    max_unacknowledged: int | None
    routed: bool | None
    position: int
    reader: str | None
    reader_since: datetime | None
    created_at: datetime
    updated_at: datetime
    pending: int | None
    in_flight: int | None
    dead: int | None
    oldest_pending_seconds: float | None
    lag: int


def find(connection: Connection, name: str | None = None) -> list[ConsumerStatus]:
    """All consumers ordered by name, or the named one; empty when there is none."""
    return queries.rows(connection, ConsumerStatus, statement("consumers", "consumer_status"), {"name": name})


def tables_read(connection: Connection) -> list[str]:
    """The events tables beside the default one that consumers read, and that exist."""
    return [name for (name,) in connection.execute(_TABLES_READ).fetchall()]


def call(connection: Connection, named: LiteralString, /, **arguments: Any) -> Any:
    """Run one of the statements that change a consumer; returns its value, if it has one."""
    return queries.value(connection, statement("consumers", named), arguments)


def dead_letters(connection: Connection, name: str, limit: int) -> list[dict[str, Any]]:
    """The oldest dead letters of a consumer, as columns by name; `letter` is the whole dead letter as JSON text."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(
            statement("consumers", "dead_letters"), {"name": name, "after": 0, "limit": limit}
        ).fetchall()
