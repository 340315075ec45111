"""The status of each consumer, and the statements that change consumers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg.rows import dict_row

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_READ_TABLES = """\
select distinct events_table from pipeline.consumers
where events_table is not null and to_regclass(pipeline.events_relation(events_table)) is not null
order by events_table
"""
"""SQL for the existing events tables, other than the default one, that consumers read."""


@dataclass(frozen=True)
class ConsumerStatus:
    """A row of `pipeline.consumers` with counts, which stop at 100 000; None if a count does not apply to its kind.

    `events_table`: the table that it reads; None is the default one. `routed`: True if a route in force sends changes
    to that table. `visibility`: in seconds. `lag`: the number of seqs from its position to the newest event.
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


def find_consumers(connection: Connection, name: str | None = None) -> list[ConsumerStatus]:
    """Return all consumers ordered by name, or only the named one; an empty list if there is none."""
    return queries.rows(connection, ConsumerStatus, statement("consumers", "consumer_status"), {"name": name})


def list_read_tables(connection: Connection) -> list[str]:
    """Return the existing events tables, other than the default one, that consumers read."""
    return [name for (name,) in connection.execute(_READ_TABLES).fetchall()]


def change_consumer(connection: Connection, change: LiteralString, /, **arguments: Any) -> Any:
    """Execute one of the statements that change a consumer; return its value, if it has one."""
    return queries.value(connection, statement("consumers", change), arguments)


def list_dead_letters(connection: Connection, name: str, limit: int) -> list[dict[str, Any]]:
    """Return the oldest dead letters of a consumer, as columns by name; `letter` is the dead letter as JSON text."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(
            statement("consumers", "dead_letters"), {"name": name, "after": 0, "limit": limit}
        ).fetchall()
