"""The part of the preflight that looks at routes: whether their tables can be written, and whether each is used."""

from __future__ import annotations

from pipeline import routing
from pipeline.catalog import sources
from pipeline.config import Config
from pipeline.db import Connection, sql
from pipeline.events.log import EventsTable
from pipeline.operations import old_log
from pipeline.operations.findings import Finding, Findings, some
from pipeline.shuffle import routes


def run(config: Config, connection: Connection, user: str) -> Findings:
    """What there is to say of routes. Raises ConfigError for a default table that may not change now."""
    yield from _held(config, connection)
    for later, earlier in routing.never_used(config.routes):
        text = f"route {later} never gets anything: route {earlier} comes first and takes all of it"
        yield Finding("warning", "routes", text, f"put route {later} first, or remove it")
    wrong = [found for name in config.events_tables[1:] for found in _table(connection, EventsTable.parse(name), user)]
    yield from wrong
    if config.routes and not wrong:
        yield Finding(
            "ok", "routes", f"{len(config.routes)} to {some(config.events_tables[1:]) or config.events_table}"
        )


def _held(config: Config, connection: Connection) -> Findings:
    row = connection.execute("select to_regclass('pipeline.routes') is not null").fetchone()
    source = sources.find(connection, config.source_id) if row and row[0] else None
    if source is not None:
        routes.require_default(connection, source.id, EventsTable.parse(config.events_table))
    yield from ()


def _table(connection: Connection, table: EventsTable, user: str) -> Findings:
    values = {"table": table.identifier.as_string(connection), "schema": f'"{table.schema}"'}
    row = connection.execute(sql("operations", "events_schema"), values).fetchone()
    present, schema_present, may_create = row or (False, False, False)
    if present and old_log.is_from_before(connection, table):
        yield from old_log.check(connection, table)
    elif present:
        yield from _shape(connection, table)
    elif not schema_present:
        text = f"{table} cannot be made: schema {table.schema} does not exist"
        yield Finding("error", "routes", text, f'create schema "{table.schema}", or correct the route')
    elif not may_create:
        remedy = f'grant create on schema "{table.schema}" to "{user}"'
        yield Finding("error", "routes", f'user "{user}" may not make {table}', remedy)


def _shape(connection: Connection, table: EventsTable) -> Findings:
    """A table that is there must be one that events fit in."""
    values = {
        "table": table.identifier.as_string(connection),
        "sequence": table.sequence.as_string(connection),
    }
    row = connection.execute(sql("operations", "events_shape"), values).fetchone()
    missing, is_table, has_sequence, may_write = row or ([], False, False, False)
    remedy = "rename it, or name another events_table in the route"
    if not is_table:
        yield Finding("error", "routes", f"{table} is no table", remedy)
    elif missing:
        yield Finding("error", "routes", f"{table} is no events table: it has no column {some(missing)}", remedy)
    elif not has_sequence:
        yield Finding("error", "routes", f"{table} has no sequence {table.name}_seq_seq to take seq from", remedy)
    elif not may_write:
        yield Finding("error", "routes", f"this user may not write {table}", f"let this user own {table}")
