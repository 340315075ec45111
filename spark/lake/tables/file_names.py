"""Names the columns in files of changes: the names of a schema version do not change. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lake.storage import layout
from lake.tables.forms import LakeTableForm
from pyspark_sequin_events.history import HistoryPosition, RelationHistoryVersion, versions


def file_names(forms: Iterable[LakeTableForm]) -> dict[tuple[str, int], Mapping[str, str]]:
    """Return by dataset and schema version: name at the source → name in its files.

    `forms`: all forms of all tables that ever had these names, in the order of their places.
    """
    by_name: dict[tuple[str, str], list[LakeTableForm]] = {}
    for form in forms:
        by_name.setdefault((form.schema, form.name), []).append(form)
    return {
        (layout.dataset(*name), version.number): version.names
        for name, called in by_name.items()
        for version in versions([_table_version(form) for form in called])
    }


def _table_version(form: LakeTableForm) -> RelationHistoryVersion:
    return RelationHistoryVersion(
        form.source_id,
        HistoryPosition(form.place.epoch, form.place.lsn, form.place.idx),
        {column.name: column.type for column in form.columns},
        frozenset(column.name for column in form.columns if column.is_json),
        form.key,
    )
