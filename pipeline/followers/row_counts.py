"""Counts the rows of tables in a bounded time: small tables exactly, large tables as Postgres estimates them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.followers.registry import NamedTable
from pipeline.postgres import queries, reading_session, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

EXACTLY = 100_000
"""The most rows of a table that are counted; the rows of a larger table are estimated."""
SETTINGS = {**session_settings.SOURCE, "statement_timeout": "8s", "lock_timeout": "2s"}
"""Settings of the sessions that count, and of each of their transactions."""


@dataclass(frozen=True)
class RowCount:
    """The number of rows of one table. `estimated`: the table has too many rows to count, so Postgres estimates."""

    rows: int
    estimated: bool = False


@dataclass(frozen=True)
class _Size:
    name: str
    plain: bool
    estimate: int
    exists: bool


def count(
    connection: Connection, tables: Sequence[NamedTable], *, by_oid: bool, most: int | None = EXACTLY
) -> list[RowCount | None]:
    """Count the rows of each of these tables, which are found by their oids, or else by their names.

    `most`: a table with more rows is estimated; None: all rows are counted. Returns None for a table that does not
    exist, or that is locked for longer than the `lock_timeout` of `SETTINGS`.
    """
    values = {
        "oids": [each.table_oid if by_oid else None for each in tables],
        "schemas": [each.table_schema for each in tables],
        "names": [each.table_name for each in tables],
    }
    with reading_session.transaction(connection, SETTINGS):
        found = queries.rows(connection, _Size, statement("followers", "sizes_of_tables"), values)
    return [_count(connection, each, most) if each.exists else None for each in found]


def _count(connection: Connection, table: _Size, most: int | None) -> RowCount | None:
    query = sql.SQL("select pg_catalog.count(*) from (select from {} {} limit {}) few").format(
        sql.SQL("only" if table.plain else ""),  # tables that inherit from it are followed separately
        sql.SQL(table.name),  # as the catalog has quoted it
        sql.Literal(most and most + 1),
    )
    try:
        with reading_session.transaction(connection, SETTINGS):
            rows: int = queries.value(connection, query)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable):
        return None
    return RowCount(rows) if most is None or rows <= most else RowCount(max(table.estimate, most), estimated=True)
