"""Events tables from before: migrated by `pipeline migrate`, and what the preflight says of them."""

from __future__ import annotations

from pipeline import db
from pipeline.catalog import sources
from pipeline.config import Config
from pipeline.db import Connection, sql
from pipeline.errors import SchemaError
from pipeline.events import old_tables
from pipeline.events.log import EventsTable
from pipeline.operations.findings import Finding, Findings
from pipeline.shuffle import routes

NEARLY = 0.8
"""Of what a column can count to, from which on it is said that it ends."""


def ensure(config: Config) -> None:
    """The events tables of these settings are there, and of today's columns. Raises SchemaError when they cannot be."""
    with db.connect(config.database, "pipeline database", name="pipeline migrate") as connection:
        stored = sources.find(connection, config.source_id)
        default = EventsTable.parse(config.events_table)
        routes.prepare(connection, stored.id if stored else None, default, config.routes)


def is_from_before(connection: Connection, table: EventsTable) -> bool:
    """Whether it is an events table that will be migrated."""
    found = old_tables.look(connection, table)
    if found is None or not found.lacks:
        return False
    try:
        old_tables.refuse_unfit(found, table)
    except SchemaError:
        return False
    return True


def check(connection: Connection, table: EventsTable) -> Findings:
    """What is to be said of a table that is there."""
    found = old_tables.look(connection, table)
    if found is None:
        return
    old_tables.refuse_unfit(found, table)
    if found.is_current:
        yield Finding("ok", "events table", f"{table} is there")
    else:
        text = f"{table} is from an older version: `pipeline serve` will migrate it; its rows stay as they are"
        yield Finding("ok", "events table", text)
        yield from _other_writer(connection, table)
    yield from _exhausted(connection, table, found.oid)


def _other_writer(connection: Connection, table: EventsTable) -> Findings:
    ago = old_tables.seconds_since_newest(connection, table)
    if ago is not None and ago < old_tables.RECENTLY:
        text = f"{table} got a row {max(0.0, ago):.0f} s ago: another server seems to write it"
        remedy = "stop that one first: once the table is migrated its rows are refused"
        yield Finding("warning", "events table", text, remedy)


def _exhausted(connection: Connection, table: EventsTable, oid: int) -> Findings:
    """Columns beside ours that are counted up with each row, such as `id serial`: at their end no row can be added."""
    for column, kind, last, most in connection.execute(sql("operations", "counted_columns"), {"oid": oid}).fetchall():
        if last < NEARLY * most:
            continue
        text = f"column {column} of {table} is {kind} and at {last:,} of {most:,}: then no event can be written"
        name = table.identifier.as_string(connection)
        remedy = (
            f"alter table {name} alter column {column} type bigint, which writes the table anew, or drop that column"
        )
        yield Finding("warning", "events table", text, remedy)
