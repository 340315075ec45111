"""The part of the preflight that looks at routes: whether their tables can be written, and whether each is used."""

from __future__ import annotations

from dataclasses import replace

from pipeline.capture.source import sources
from pipeline.config import routes as routing
from pipeline.config.settings import Config
from pipeline.log.table import EventsTable
from pipeline.operate.preflight import legacy_log
from pipeline.operate.preflight.findings import Finding, Findings, guarded, some
from pipeline.postgres.connections import Connection
from pipeline.shuffle import routes


def run(config: Config, connection: Connection) -> Findings:
    """What there is to say of routes. Raises ConfigError for a default table that may not change now."""
    yield from _held(config, connection)
    for later, earlier in routing.never_used(config.routes):
        text = f"route {later} never gets anything: route {earlier} comes first and takes all of it"
        yield Finding("warning", "routes", text, f"put route {later} first, or remove it")
    wrong = [found for name in config.events_tables[1:] for found in _table(connection, EventsTable.parse(name))]
    yield from wrong
    if config.routes and not wrong:
        yield Finding(
            "ok", "routes", f"{len(config.routes)} to {some(config.events_tables[1:]) or config.events_table}"
        )


def _held(config: Config, connection: Connection) -> Findings:
    source = sources.find_in_any(connection, config.source_id)
    if source is not None:
        routes.require_default(connection, source.id, EventsTable.parse(config.events_table))
    yield from ()


def _table(connection: Connection, table: EventsTable) -> Findings:
    """What is wrong with it."""
    for finding in guarded("routes", lambda: legacy_log.check(connection, table, "routes", "the route")):
        if finding.level != "ok":
            yield replace(finding, remedy=finding.remedy.replace("PIPELINE_EVENTS_TABLE", "the route"))
