"""Merges the versions of a source table into schema versions: a reader may read all files of one together."""

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
"""What every row begins with, before the columns of its table."""
RESERVED = frozenset({*OURS, "date", "schema"})
"""Names that a user's column cannot have: ours, and those in the names of folders."""


@dataclass(frozen=True, order=True)
class HistoryPosition:
    """A place in the history of one source."""

    epoch: int
    lsn: int
    idx: int


@dataclass(frozen=True)
class SourceTableVersion:
    """A table as it was for the changes from `since` on: name of each column → its type, and which are JSON."""

    source_id: str
    since: HistoryPosition
    columns: Mapping[str, str]
    json: frozenset[str]
    key: tuple[str, ...]


@dataclass(frozen=True)
class VersionSpan:
    """Where a schema version is valid at a source: from `since` (None: the beginning) to before `until`.

    `key`: the columns of the table's key there.
    """

    source_id: str
    since: HistoryPosition | None
    until: HistoryPosition | None = None
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class SchemaVersion:
    """A schema that fits a series of table versions: columns are only added or widened, none is removed.

    `columns`: name at the source → type, in the order in which they came. `key`: of its last table version.
    """

    number: int
    columns: Mapping[str, str]
    json: frozenset[str]
    key: tuple[str, ...]
    spans: tuple[VersionSpan, ...] = field(default=())

    @property
    def names(self) -> Mapping[str, str]:
        """Name at the source → name in the files; the latter also differ for readers that ignore case."""
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
        """Name in the files → type: ours, then the table's."""
        return {**OURS, **{self.names[column]: spark for column, spark in self.columns.items()}}

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key's columns as the files name them."""
        return tuple(self.names[column] for column in self.key if column in self.columns)


def table_versions(rows: Iterable[Mapping[str, Any]]) -> list[SourceTableVersion]:
    """Rows of pipeline.relations (columns and keys as JSON text), in the order of the changes they hold for."""
    found = [(row["id"], _table_version(row)) for row in rows]
    first_id: dict[str, int] = {}
    for number, table in sorted(found, key=lambda it: it[0]):
        first_id.setdefault(table.source_id, number)
    return [table for number, table in sorted(found, key=lambda it: (first_id[it[1].source_id], it[1].since, it[0]))]


def versions(history: Sequence[SourceTableVersion]) -> list[SchemaVersion]:
    """Merge table versions, in the order of `table_versions`, into schema versions; the first is number 1.

    A column that is added, dropped or widened begins no new one: a reader can read old and new files together. A column
    whose old and new types have no common type begins the next schema version.
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


def _table_version(row: Mapping[str, Any]) -> SourceTableVersion:
    columns = json.loads(row["columns"])
    return SourceTableVersion(
        source_id=str(row["source_id"]),
        since=HistoryPosition(row["epoch"], row["from_lsn"], row["from_idx"]),
        columns={
            column["name"]: spark_type(column["type_oid"], column["type_modifier"], column["type_name"])
            for column in columns
        },
        json=frozenset(column["name"] for column in columns if column["base_type_oid"] in JSON_OIDS),
        key=tuple(json.loads(row["key_columns"])),
    )


def _merge(version: SchemaVersion, table: SourceTableVersion) -> SchemaVersion | None:
    columns = dict(version.columns)
    for name, spark in table.columns.items():
        common = wider(columns[name], spark) if name in columns else spark
        if common is None or (name in version.columns and (name in version.json) != (name in table.json)):
            return None
        columns[name] = common
    return replace(version, columns=columns, json=version.json | table.json, key=table.key)


def _begin_key_span(version: SchemaVersion, table: SourceTableVersion) -> SchemaVersion:
    """Where its key becomes another, another span begins."""
    last = version.spans[-1]
    if last.key == table.key:
        return version
    return replace(
        version,
        spans=(*_close_span(version, table.since).spans, VersionSpan(table.source_id, table.since, key=table.key)),
    )


def _close_span(version: SchemaVersion, until: HistoryPosition) -> SchemaVersion:
    return replace(version, spans=(*version.spans[:-1], replace(version.spans[-1], until=until)))
