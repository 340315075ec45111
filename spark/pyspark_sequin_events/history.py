"""Merges the versions of a source table into schema versions: all files of one schema version can be read together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from pyspark_sequin_events.types import spark_type, wider

JSON_OIDS = frozenset({114, 3802})
OURS: Mapping[str, str] = {
    "seq": "bigint",
    "source_epoch": "int",
    "commit_lsn": "bigint",
    "commit_idx": "int",
    "source_table_oid": "bigint",
    "action": "string",
    "committed_at": "timestamp",
    "record_pk": "string",
    "previous_record_pk": "string",
    "unchanged_columns": "array<string>",
    "transaction_annotations": "string",
    "event_metadata": "string",
    "exact": "string",
}
"""The columns with which every row begins, before the columns of its table."""
RESERVED = frozenset({*OURS, "date", "schema"})
"""Names that a user's column cannot have: those of our columns, and those in the names of folders."""


@dataclass(frozen=True, order=True)
class HistoryPosition:
    """A place in the history of one source."""

    epoch: int
    lsn: int
    idx: int


@dataclass(frozen=True)
class RelationHistoryVersion:
    """A source table as it was for changes from `since` on. `columns`: name → type. `json`: columns that are JSON."""

    source_id: str
    since: HistoryPosition
    columns: Mapping[str, str]
    json: frozenset[str]
    key: tuple[str, ...]


@dataclass(frozen=True)
class VersionSpan:
    """A part of a source's history with one schema version: from `since` (None: the start) to before `until`.

    `key`: the columns of the table's key in that part.
    """

    source_id: str
    since: HistoryPosition | None
    until: HistoryPosition | None = None
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class SchemaVersion:
    """A schema that fits a series of table versions: columns are only added or widened, none is removed.

    `columns`: name at the source → type, in the order in which they were added. `key`: that of the last table version.
    """

    number: int
    columns: Mapping[str, str]
    json: frozenset[str]
    key: tuple[str, ...]
    spans: tuple[VersionSpan, ...] = field(default=())

    @property
    def names(self) -> Mapping[str, str]:
        """Name at the source → name in the files. The names in the files also differ for readers that ignore case."""
        taken = set(RESERVED)
        names = {}
        for column in self.columns:
            name = column
            while name.lower() in taken:
                name += "_column"
            taken.add(name.lower())
            names[column] = name
        return names

    @property
    def schema(self) -> Mapping[str, str]:
        """Name in the files → type: our columns, then the table's."""
        return {**OURS, **{self.names[column]: spark for column, spark in self.columns.items()}}

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the key's columns in the files."""
        return tuple(self.names[column] for column in self.key if column in self.columns)


def table_versions(rows: Iterable[Mapping[str, Any]]) -> list[RelationHistoryVersion]:
    """Read rows of pipeline.relations (columns and keys as JSON text), and sort them in the order of the changes."""
    found = [(row["id"], _table_version(row)) for row in rows]
    first_id: dict[str, int] = {}
    for number, table in sorted(found, key=lambda it: it[0]):
        first_id.setdefault(table.source_id, number)
    return [table for number, table in sorted(found, key=lambda it: (first_id[it[1].source_id], it[1].since, it[0]))]


def versions(history: Sequence[RelationHistoryVersion]) -> list[SchemaVersion]:
    """Merge table versions, in the order of `table_versions`, into schema versions; the first is number 1.

    A column that is added, dropped or widened begins no new schema version: a reader can read old and new files
    together. A column whose old and new types have no common type begins the next schema version.
    """
    found: list[SchemaVersion] = []
    for source_id, of_source in groupby(history, key=lambda table: table.source_id):
        opens = True
        for table in of_source:
            merged = _merge(found[-1], table) if found else None
            if merged is None:
                if found and not opens:
                    found[-1] = _close_span(found[-1], table.since)
                since = None if opens else table.since
                found.append(
                    SchemaVersion(
                        len(found) + 1,
                        table.columns,
                        table.json,
                        table.key,
                        (VersionSpan(source_id, since, key=table.key),),
                    ),
                )
            elif opens:
                found[-1] = replace(merged, spans=(*merged.spans, VersionSpan(source_id, None, key=table.key)))
            else:
                found[-1] = _begin_key_span(merged, table)
            opens = False
    return found


def _table_version(row: Mapping[str, Any]) -> RelationHistoryVersion:
    columns = json.loads(row["columns"])
    return RelationHistoryVersion(
        source_id=str(row["source_id"]),
        since=HistoryPosition(row["epoch"], row["from_lsn"], row["from_idx"]),
        columns={
            column["name"]: spark_type(column["type_oid"], column["type_modifier"], column["type_name"])
            for column in columns
        },
        json=frozenset(column["name"] for column in columns if column["base_type_oid"] in JSON_OIDS),
        key=tuple(json.loads(row["key_columns"])),
    )


def _merge(version: SchemaVersion, table: RelationHistoryVersion) -> SchemaVersion | None:
    columns = dict(version.columns)
    for name, spark in table.columns.items():
        common = wider(columns[name], spark) if name in columns else spark
        if common is None or (name in version.columns and (name in version.json) != (name in table.json)):
            return None
        columns[name] = common
    return replace(version, columns=columns, json=version.json | table.json, key=table.key)


def _begin_key_span(version: SchemaVersion, table: RelationHistoryVersion) -> SchemaVersion:
    """Return the version, with a new span if the key of the table has changed."""
    last = version.spans[-1]
    if last.key == table.key:
        return version
    return replace(
        version,
        spans=(*_close_span(version, table.since).spans, VersionSpan(table.source_id, table.since, key=table.key)),
    )


def _close_span(version: SchemaVersion, until: HistoryPosition) -> SchemaVersion:
    return replace(version, spans=(*version.spans[:-1], replace(version.spans[-1], until=until)))
