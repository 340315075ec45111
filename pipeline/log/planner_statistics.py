"""What Postgres' planner knows of events tables, for statements that read much of them at once."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import sql

from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_COLUMNS = sql.SQL(", ").join(map(sql.Identifier, ("source_database_id", "source_table_oid", "seq", "action")))


def refresh(connection: Connection, tables: Iterable[EventsTable]) -> None:
    """Analyze where most rows have come since the last time: autovacuum may not have got there yet.

    Else a table of a million rows counts as a few, and is read row by row in the order of its keys. What somebody locks
    is left as it is, and what this user does not own.
    """
    for table in tables:
        for schema, name in connection.execute(statement("log", "unknown_rows"), {"table": str(table)}).fetchall():
            query = sql.SQL("analyze (skip_locked) {} ({})").format(sql.Identifier(schema, name), _COLUMNS)
            connection.execute(query)
