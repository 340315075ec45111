"""How many rows tables have, in a bounded time: exactly where they are few, else as Postgres estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.followers.registry import TableName
from pipeline.postgres import queries, reading_session, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

EXACTLY = 100_000
"""So many rows are counted."""
SETTINGS = {**session_settings.SOURCE, "statement_timeout": "8s", "lock_timeout": "2s"}
"""Settings of the sessions that count, and of each of their transactions."""


@dataclass(frozen=True)
class Rows:
    """Of one table. `estimated`: it has more than are counted, so this is Postgres' belief."""

    rows: int
    estimated: bool = False


@dataclass(frozen=True)
class _Size:
    name: str
    plain: bool
    estimate: int
    exists: bool


def count(
    connection: Connection, tables: Sequence[TableName], *, by_oid: bool, most: int | None = EXACTLY
) -> list[Rows | None]:
    """Count the rows of each of these tables, which are known here by their oids, or by their names.

    `most`: a table with more rows is estimated; None: all are counted.

    None: it is not there, or locked for longer than the `lock_timeout` of `SETTINGS`.
    """
    values = {
        "oids": [each.table_oid if by_oid else None for each in tables],
        "schemas": [each.table_schema for each in tables],
        "names": [each.table_name for each in tables],
    }
    with reading_session.transaction(connection, SETTINGS):
        found = queries.rows(connection, _Size, statement("followers", "sizes_of_tables"), values)
    return [_count(connection, each, most) if each.exists else None for each in found]


def _count(connection: Connection, table: _Size, most: int | None) -> Rows | None:
    query = sql.SQL("select pg_catalog.count(*) from (select from {} {} limit {}) few").format(
        sql.SQL("only" if table.plain else ""),  # children that inherit from it are tables of their own
        sql.SQL(table.name),  # as the catalog has quoted it
        sql.Literal(most and most + 1),
    )
    try:
        with reading_session.transaction(connection, SETTINGS):
            rows: int = queries.value(connection, query)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable):
        return None
    return Rows(rows) if most is None or rows <= most else Rows(max(table.estimate, most), estimated=True)
