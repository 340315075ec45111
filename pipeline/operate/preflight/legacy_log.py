"""Legacy events tables, which `pipeline migrate` migrates and the preflight reports."""

from __future__ import annotations

from psycopg.sql import Identifier

from pipeline.capture.source import sources
from pipeline.config.settings import Config
from pipeline.findings import CheckFinding, CheckFindings, SqlRemedy, quoted
from pipeline.log import legacy_tables, table_shape
from pipeline.log.shuffling import routes
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import shortest, sql

NEARLY = 0.8
"""The share of a column's numbers after which the preflight warns that the numbers run out."""
_EVENTS_SCHEMA = """\
select to_regnamespace(%(schema)s) is not null as present,
    coalesce(has_schema_privilege(to_regnamespace(%(schema)s), 'create'), false) as may_create,
    current_user::text as user_name
"""
"""True if the schema of an events table exists, and true if this user may create the table."""


def ensure(config: Config, connection: Connection) -> None:
    """Create the events tables of these settings, or migrate them. Raises SchemaError if that is not possible."""
    stored = sources.find(connection, config.source_id)
    routes.prepare(connection, stored.id if stored else None, EventsTable.parse(config.events_table), config.routes)


def check(
    connection: Connection, table: EventsTable, name: str = "events table", setting: str = "PIPELINE_EVENTS_TABLE"
) -> CheckFindings:
    """Yield findings on an events table: if it can be created, and if events can be written to it.

    `name`: the name of the findings; `setting`: the setting that names the table. Raises SchemaError if another object
    has that name.
    """
    found = table_shape.describe_relation(connection, table)
    if found is None:
        yield _to_be_made(connection, table, name, setting)
        return
    table_shape.refuse_unfit(found, table)
    if not found.is_current:
        text = f"{table} is from an older version: `pipeline serve` will migrate it; its rows are not changed"
        yield CheckFinding("ok", name, text)
        yield from _other_writer(connection, table, name)
    elif not found.is_owner and found.partitioned_by:
        yield CheckFinding("error", name, f"this user may not write {table}", f"make this user the owner of {table}")
    else:
        yield CheckFinding("ok", name, f"{table} exists")
    yield from _exhausted(connection, table, found.oid, name)


def _to_be_made(connection: Connection, table: EventsTable, name: str, setting: str) -> CheckFinding:
    schema = Identifier(table.schema).as_string(connection)
    row = connection.execute(_EVENTS_SCHEMA, {"schema": schema}).fetchone()
    assert row is not None  # noqa: S101  a query without a table
    present, may_create, user = row
    if not present:
        text = f"{table} cannot be created: schema {table.schema} does not exist"
        owner = quoted(
            connection,
            "create schema {schema} authorization {user}",
            schema=Identifier(table.schema),
            user=Identifier(user),
        )
        remedy = f"create schema {schema}, or correct {setting}"
        return CheckFinding("error", name, text, remedy, cure=SqlRemedy("pipeline", (owner,)))
    if not may_create:
        remedy = quoted(
            connection,
            "grant create on schema {schema} to {user}",
            schema=Identifier(table.schema),
            user=Identifier(user),
        )
        return CheckFinding(
            "error", name, f'user "{user}" may not create {table}', sql(remedy), cure=SqlRemedy("pipeline", (remedy,))
        )
    return CheckFinding("ok", name, f"{table} will be created")


def _other_writer(connection: Connection, table: EventsTable, name: str) -> CheckFindings:
    ago = legacy_tables.seconds_since_newest(connection, table)
    if ago is not None and ago < legacy_tables.RECENTLY:
        text = f"a row was written to {table} {max(0.0, ago):.0f} s ago: another server seems to write to it"
        remedy = "stop that server first: once the table is migrated, its rows are rejected"
        yield CheckFinding("warning", name, text, remedy)


def _exhausted(connection: Connection, table: EventsTable, oid: int, name: str) -> CheckFindings:
    """Warn of other columns that a sequence fills, such as `id serial`: once the sequence ends, no row can be added."""
    for column, kind, last, most in connection.execute(
        statement("operate.preflight", "counted_columns"), {"oid": oid}
    ).fetchall():
        if last < NEARLY * most:
            continue
        text = f"column {column} of {table} is {kind} and at {last:,} of {most:,}: beyond that no event can be written"
        where = f"alter table {sql(table.identifier.as_string(connection))} alter column {shortest(column)}"
        remedy = f"{where} type bigint, which rewrites the table, or drop that column"
        yield CheckFinding("warning", name, text, remedy)
