"""The forms that a source table has had, folded into schema versions whose files readers may mix."""

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
"""Names a user's column cannot have: ours, and those of the folders."""


@dataclass(frozen=True, order=True)
class Position:
    """A place in the history of one source."""

    epoch: int
    lsn: int
    idx: int


@dataclass(frozen=True)
class Form:
    """A table as it was for the changes from `since` on: name of each column → its type, and which are JSON."""

    source_id: str
    since: Position
    columns: Mapping[str, str]
    json: frozenset[str]
    key: tuple[str, ...]


@dataclass(frozen=True)
class Span:
    """Where a version holds in the history of a source: from `since` (None: from the beginning) to before `until`."""

    source_id: str
    since: Position | None
    until: Position | None = None


@dataclass(frozen=True)
class Version:
    """A schema that no change of the table contradicts: columns come and get wider, and none goes.

    `columns`: name at the source → type, in the order in which they came. `key`: of its last form.
    """

    number: int
    columns: Mapping[str, str]
    json: frozenset[str]
    key: tuple[str, ...]
    spans: tuple[Span, ...] = field(default=())

    @property
    def names(self) -> Mapping[str, str]:
        """Name at the source → name in the files, which readers that ignore case can tell apart, too."""
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


def forms(rows: Iterable[Mapping[str, Any]]) -> list[Form]:
    """Rows of pipeline.relations (columns and keys as JSON text), in the order of the changes they hold for."""
    found = [(row["id"], _form(row)) for row in rows]
    first_id: dict[str, int] = {}
    for number, form in sorted(found, key=lambda it: it[0]):
        first_id.setdefault(form.source_id, number)
    return [form for number, form in sorted(found, key=lambda it: (first_id[it[1].source_id], it[1].since, it[0]))]


def versions(history: Sequence[Form]) -> list[Version]:
    """Fold forms, in the order of `forms`, into versions; the first is number 1.

    A column that comes, goes or gets wider changes nothing for those who read old and new files together; a column
    whose old and new types have no common one begins the next version.
    """
    found: list[Version] = []
    for source_id, of_source in groupby(history, key=lambda form: form.source_id):
        opens = True
        for form in of_source:
            merged = _merge(found[-1], form) if found else None
            if merged is None:
                if found and not opens:
                    found[-1] = _closed(found[-1], form.since)
                since = None if opens else form.since
                found.append(
                    Version(len(found) + 1, form.columns, form.json, form.key, (Span(source_id, since),)),
                )
            else:
                spans = (*merged.spans, Span(source_id, None)) if opens else merged.spans
                found[-1] = replace(merged, spans=spans)
            opens = False
    return found


def _form(row: Mapping[str, Any]) -> Form:
    columns = json.loads(row["columns"])
    return Form(
        source_id=str(row["source_id"]),
        since=Position(row["epoch"], row["from_lsn"], row["from_idx"]),
        columns={
            column["name"]: spark_type(column["type_oid"], column["type_modifier"], column["type_name"])
            for column in columns
        },
        json=frozenset(column["name"] for column in columns if column["base_type_oid"] in JSON_OIDS),
        key=tuple(json.loads(row["key_columns"])),
    )


def _merge(version: Version, form: Form) -> Version | None:
    columns = dict(version.columns)
    for name, spark in form.columns.items():
        common = wider(columns[name], spark) if name in columns else spark
        if common is None or (name in version.columns and (name in version.json) != (name in form.json)):
            return None
        columns[name] = common
    return replace(version, columns=columns, json=version.json | form.json, key=form.key)


def _closed(version: Version, until: Position) -> Version:
    return replace(version, spans=(*version.spans[:-1], replace(version.spans[-1], until=until)))
