"""Finds the last known definition of a follower's table: as it was copied, created, or altered by a schema change."""

from __future__ import annotations

from pipeline.followers.applying import table_versions
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import COLUMN_PARTS, LAST, CopiedColumns, HistoryPlace
from pipeline.followers.copying import copies
from pipeline.followers.copying.source_definitions import SourceDefinition
from pipeline.followers.registry import NamedTable
from pipeline.followers.schema_changes import reached_versions
from pipeline.postgres.connections import Connection


def find(log: Connection, follower: Connection, here: FollowerPosition, table: NamedTable) -> SourceDefinition | None:
    """Return the definition of a follower's table, which the source may have dropped; None if nothing tells it.

    `log`: the pipeline database. `here`: the follower's position.
    """
    oid, called = table.table_oid, (table.table_schema, table.table_name)
    found, place = copies.last_definition(follower, here, oid)
    stored = reached_versions.find(follower, here).get(oid)
    if isinstance(found, SourceDefinition):
        return found
    if found is not None and not (stored and place and stored.place > place) and _are_complete(found):
        return SourceDefinition(oid, *called, columns_of(found), [each[0] for each in found if each[-1]], [])
    place = place or HistoryPlace(here.source_epoch, here.commit_lsn or 0, LAST)
    version = table_versions.version_at(log, here.source, table, max(place, stored.place) if stored else place)
    if version is None:
        return None
    return SourceDefinition(version.table_oid, *called, version.columns, version.key_columns, [])


def columns_of(copied: CopiedColumns) -> list[dict[str, object]]:
    """Return copied columns in the format of the relation history."""
    return [
        {"name": name, "type_oid": kind, "type_modifier": modifier, "attnum": number}
        for name, kind, modifier, number, _ in copied
    ]


def _are_complete(copied: CopiedColumns) -> bool:
    return all(len(each) == COLUMN_PARTS for each in copied)
