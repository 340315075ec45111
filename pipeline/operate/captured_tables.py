"""The tables of the source: captured or not and why, complete in the log or not, rewritten or not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipeline.capture.schema_history import rewrites
from pipeline.capture.source.sources import ReplicationSource
from pipeline.operate.status import PipelineStatus
from pipeline.postgres.connections import Connection
from pipeline.snapshots import overview


@dataclass(frozen=True)
class SourceTable:
    """A table of the source. `state`: None if it is not captured; `complete` if the log has all of its rows, else the
    state of the backfill that reads them, or `not read`; `reason`: why.

    `not_captured`: the changes that are not captured, and why. `rewritten`: the columns whose values DDL has changed
    without events; `remedy`: the commands that fix this.
    """

    table: str
    state: str | None = None
    reason: str | None = None
    not_captured: str | None = None
    rewritten: str | None = None
    remedy: str | None = None


def list_tables(connection: Connection, stored: ReplicationSource, now: PipelineStatus) -> list[SourceTable]:
    """Return the captured tables, and those that match the settings but are not captured in full, by name."""
    readings = overview.readings(connection, stored.id)
    found = {each.table: SourceTable(each.table, each.state, each.reason) for each in readings}
    for table, why in now.not_captured.items():
        found[table] = replace(found.get(table, SourceTable(table)), not_captured=why)
    for each in rewrites.read_unsettled(connection, stored.id):
        known = found.get(each.table, SourceTable(each.table))
        found[each.table] = replace(known, rewritten=each.why, remedy=each.remedy)
    return [found[name] for name in sorted(found)]
