"""What a fold reads: the files of changes, the version it begins with, the columns that come out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from lake import layout
from pyspark_sequin_events.history import OURS

ROWS_PER_BUCKET = 250_000
"""Roughly; a bucket is rewritten as a whole when one of its keys changes."""
GROWN = 4
"""A table gets more buckets when it has so many times the rows that its buckets were made for."""
STATE: Mapping[str, str] = {"record_pk": "string", "seq": "bigint", "committed_at": "timestamp", "exact": "string"}
"""What every row of a state begins with, before the columns of its table."""


@dataclass(frozen=True)
class BucketFile:
    """A file of a version: rows whose crc32(record_pk) modulo the number of buckets is `bucket`."""

    name: str
    bucket: int
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class StateVersion:
    """A table as of `seq`, in files of `columns` (the table's own, name → type).

    `source_epoch` and `source_table_oid` are those of the last change in it.
    """

    id: int
    dataset: str
    seq: int
    schema_version: int
    columns: Mapping[str, str]
    buckets: int
    rows: int
    files: Sequence[BucketFile]
    source_epoch: int
    source_table_oid: int


@dataclass(frozen=True)
class Source:
    """Files of changes that were written with the same columns. `paths` are in the lake.

    Without `has_key` the table had no key then: nothing identifies its rows.
    """

    schema_version: int
    columns: Mapping[str, str]
    has_key: bool
    paths: list[str]


@dataclass(frozen=True)
class Folding:
    """A fold: changes with `after` < seq <= `seq`, over `base`, become rows of `columns`."""

    dataset: str
    seq: int
    base: StateVersion | None
    schema_version: int
    columns: Mapping[str, str]
    sources: Sequence[Source]
    bytes: int

    @property
    def after(self) -> int:
        """Changes up to here are in the base."""
        return self.base.seq if self.base else 0

    @property
    def same_columns(self) -> bool:
        """Whether files of the base can stay as they are."""
        return self.base is not None and dict(self.base.columns) == dict(self.columns)


@dataclass(frozen=True)
class Life:
    """Changes of one table in one epoch: the last of them, and its last truncate (0: none)."""

    source_epoch: int
    source_table_oid: int
    last_seq: int
    truncated_seq: int


def plan(dataset: str, exports: Iterable[Mapping[str, Any]], bases: Iterable[StateVersion], seq: int) -> Folding | None:
    """The fold that makes the state as of `seq`, over the newest of `bases` that is not newer than `seq`.

    None when the table has no key at `seq`, or no change. `exports` are the ledger's committed ones, in order.
    """
    base = max((base for base in bases if base.seq <= seq), key=lambda base: base.seq, default=None)
    after = base.seq if base else 0
    schemas: dict[int, Mapping[str, Any]] = {}
    groups: dict[tuple[Any, ...], Source] = {}
    size = 0
    for export in exports:
        for file in export["files"]:
            if file["dataset"] != dataset or file["first_seq"] > seq:
                continue
            schema = export["schemas"][dataset][str(file["schema"])]
            schemas[file["schema"]] = schema
            if file["last_seq"] > after:
                size += file["bytes"]
                _group(groups, file["schema"], schema).paths.append(file["path"])
    newest = max(schemas, default=layout.UNTYPED)
    if newest == layout.UNTYPED or not schemas[newest]["key"]:
        return None
    return Folding(dataset, seq, base, newest, own(schemas[newest]["columns"]), list(groups.values()), size)


def behind(exports: Iterable[Mapping[str, Any]], versions: Iterable[StateVersion]) -> list[str]:
    """Datasets with a key whose newest version lacks a change."""
    folded: dict[str, int] = {}
    for version in versions:
        folded[version.dataset] = max(version.seq, folded.get(version.dataset, 0))
    changed: dict[str, int] = {}
    newest: dict[str, tuple[int, bool]] = {}
    for export in exports:
        for name, schemas in export["schemas"].items():
            number = max(map(int, schemas))
            if number >= newest.get(name, (0, False))[0]:
                newest[name] = number, bool(schemas[str(number)]["key"])
        for file in export["files"]:
            changed[file["dataset"]] = max(file["last_seq"], changed.get(file["dataset"], 0))
    return sorted(name for name, seq in changed.items() if newest[name][1] and seq > folded.get(name, 0))


def emptied_at(lives: Iterable[Life], base: StateVersion | None) -> int:
    """The last seq at which the table was emptied, by truncate or by dropping and creating it again; 0 for never.

    In one epoch a table keeps its oid. Another epoch may be another server, where the same rows have another oid.
    """
    emptied = 0
    by_epoch: dict[int, dict[int, int]] = {}
    if base is not None:
        by_epoch[base.source_epoch] = {base.source_table_oid: base.seq}
    for life in lives:
        emptied = max(emptied, life.truncated_seq)
        oids = by_epoch.setdefault(life.source_epoch, {})
        oids[life.source_table_oid] = max(life.last_seq, oids.get(life.source_table_oid, 0))
    for oids in by_epoch.values():
        last_of_each = sorted(oids.values())
        emptied = max(emptied, *last_of_each[:-1], 0)
    return emptied


def buckets_for(rows: int) -> int:
    """The number of buckets for so many rows, a power of two."""
    wanted = ceil(rows / ROWS_PER_BUCKET)
    return 1 << max(0, wanted - 1).bit_length()


def buckets_of(base: StateVersion | None, live: int) -> int:
    """The next version's number of buckets: as before, unless the table has grown. `live`: rows of it that changed."""
    if base is None:
        return buckets_for(live)
    rows = max(base.rows, live)
    return buckets_for(rows) if rows > GROWN * ROWS_PER_BUCKET * base.buckets else base.buckets


def _group(groups: dict[tuple[Any, ...], Source], version: int, schema: Mapping[str, Any]) -> Source:
    has_key = bool(schema["key"]) or version == layout.UNTYPED
    group = version, tuple(sorted(schema["columns"].items())), has_key
    return groups.setdefault(group, Source(version, schema["columns"], has_key, []))


def own(columns: Mapping[str, str]) -> dict[str, str]:
    """The columns of a file of changes that are its table's own."""
    return {name: spark for name, spark in columns.items() if name not in OURS}
