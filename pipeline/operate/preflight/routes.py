"""The preflight's part on routes: whether their tables can be written, and whether each route is used."""

from __future__ import annotations

from dataclasses import replace

from pipeline.capture.source import sources
from pipeline.config.routes import dividing, never_used
from pipeline.config.settings import Config
from pipeline.exports import status
from pipeline.findings import Finding, Findings, first_names, guarded
from pipeline.log.shuffling import routes
from pipeline.log.table import EventsTable
from pipeline.operate.preflight import legacy_log
from pipeline.postgres.connections import Connection


def run(config: Config, connection: Connection) -> Findings:
    """Findings on routes. Raises ConfigError when the default table differs but may not change now."""
    _require_default(config, connection)
    for later, earlier in never_used(config.routes):
        text = f"route {later} never gets a change: route {earlier} comes first and takes all of them"
        yield Finding("warning", "routes", text, f"put route {later} first, or remove it")
    if status.why_off(config) is None:
        for number in dividing(config.routes):
            text = f"route {number} takes some actions only: its tables have no `current` in the lake"
            yield Finding("warning", "routes", text, "leave out its actions, or read `changes` of both lakes")
    wrong = [found for name in config.events_tables[1:] for found in _table(connection, EventsTable.parse(name))]
    yield from wrong
    if config.routes and not wrong:
        yield Finding(
            "ok", "routes", f"{len(config.routes)} to {first_names(config.events_tables[1:]) or config.events_table}"
        )


def _require_default(config: Config, connection: Connection) -> None:
    source = sources.find_in_any(connection, config.source_id)
    if source is not None:
        routes.require_default(connection, source.id, EventsTable.parse(config.events_table))


def _table(connection: Connection, table: EventsTable) -> Findings:
    """What is wrong with the table of a route."""
    for finding in guarded("routes", lambda: legacy_log.check(connection, table, "routes", "the route")):
        if finding.level != "ok":
            yield replace(finding, remedy=finding.remedy.replace("PIPELINE_EVENTS_TABLE", "the route"))
