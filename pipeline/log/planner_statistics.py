"""Refresh the statistics of Postgres' planner on events tables, for statements that read many events."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import sql

from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_COLUMNS = sql.SQL(", ").join(map(sql.Identifier, ("source_database_id", "source_table_oid", "seq", "action")))


def refresh(connection: Connection, tables: Iterable[EventsTable]) -> None:
    """Analyze tables most of whose rows are newer than their statistics: autovacuum may not have analyzed them yet.

    Otherwise the planner takes a million rows for a few, and reads them row by row in the order of their keys. Tables
    that another session locks, and tables that this user does not own, are skipped.
    """
    for table in tables:
        for schema, name in connection.execute(statement("log", "unknown_rows"), {"table": str(table)}).fetchall():
            query = sql.SQL("analyze (skip_locked) {} ({})").format(sql.Identifier(schema, name), _COLUMNS)
            connection.execute(query)
