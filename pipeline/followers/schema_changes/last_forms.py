"""Finds the last form of a follower's table: from its copy, a schema change, or the form with which it was created."""

from __future__ import annotations

from pipeline.followers.applying import table_versions
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import COLUMN_PARTS, LAST, CopiedForm, HistoryPlace
from pipeline.followers.copying import copies
from pipeline.followers.copying.source_forms import SourceForm
from pipeline.followers.registry import NamedTable
from pipeline.followers.schema_changes import reached_versions
from pipeline.postgres.connections import Connection


def find(log: Connection, follower: Connection, here: FollowerPosition, table: NamedTable) -> SourceForm | None:
    """Return the form of a follower's table, which the source may have dropped; None if nothing tells the form.

    `log`: the pipeline database. `here`: the follower's position.
    """
    oid, called = table.table_oid, (table.table_schema, table.table_name)
    form, place = copies.last_form(follower, here, oid)
    stored = reached_versions.find(follower, here).get(oid)
    if isinstance(form, SourceForm):
        return form
    if form is not None and not (stored and place and stored.place > place) and _tells_all(form):
        return SourceForm(oid, *called, columns_of(form), [each[0] for each in form if each[-1]], [])
    place = place or HistoryPlace(here.source_epoch, here.commit_lsn or 0, LAST)
    found = table_versions.version_at(log, here.source, table, max(place, stored.place) if stored else place)
    return None if found is None else SourceForm(found.table_oid, *called, found.columns, found.key_columns, [])


def columns_of(copied: CopiedForm) -> list[dict[str, object]]:
    """Return the columns of a copy in the format of the relation history."""
    return [
        {"name": name, "type_oid": kind, "type_modifier": modifier, "attnum": number}
        for name, kind, modifier, number, _ in copied
    ]


def _tells_all(copied: CopiedForm) -> bool:
    return all(len(each) == COLUMN_PARTS for each in copied)
