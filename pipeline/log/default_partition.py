"""A default partition for legacy events tables partitioned by committed_at, so that no event lacks a partition."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from psycopg import sql

from pipeline.log import legacy_tables, table_shape
from pipeline.log.table_shape import Found
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection

if TYPE_CHECKING:
    from pipeline.log.table import EventsTable

_LONGEST = 63


def add(connection: Connection, table: EventsTable, found: Found) -> None:
    """Add it if the table, described by `found`, lacks it. Raises SchemaError when sessions hold the table."""
    if _is_lacking(found):
        legacy_tables.attempt(_attach, connection, table, found)


def _is_lacking(found: Found) -> bool:
    return found.partitioned_by == "RANGE (committed_at)" and not found.has_default


def _attach(connection: Connection, table: EventsTable) -> None:
    connection.execute(sql.SQL("lock table {} in share update exclusive mode").format(table.identifier))
    found = table_shape.look(connection, table)
    if found is None or not _is_lacking(found):
        return
    names = {"table": table.identifier, "partition": sql.Identifier(table.schema, _name(connection, table))}
    # Created, then attached: `partition of` would wait for every reader. A partition cannot have an identity column.
    for command in (
        "create table {partition} (like {table} including all excluding identity)",
        "alter table {table} attach partition {partition} default",
    ):
        connection.execute(sql.SQL(command).format(**names))


def _name(connection: Connection, table: EventsTable) -> str:
    """The name that pg_partman gives; with a number if a detached partition still has that name."""
    ends = ("_default" + (f"_{number}" if number else "") for number in itertools.count())
    names = (table.name.encode()[: _LONGEST - len(end)].decode(errors="ignore") + end for end in ends)
    return next(name for name in names if _is_free(connection, sql.Identifier(table.schema, name)))


def _is_free(connection: Connection, name: sql.Identifier) -> bool:
    return bool(queries.value(connection, "select to_regclass(%s) is null", [name.as_string(connection)]))
