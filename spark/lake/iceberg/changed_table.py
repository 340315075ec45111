"""Changes one Iceberg table in a commit: its columns, its files, and expired snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSchemaUpdate, RemoveSnapshotsUpdate, SetCurrentSchemaUpdate

from lake.errors import ExportError
from lake.iceberg import schema
from lake.iceberg.failures import FAILURES, first_line
from lake.iceberg.names import Identifier
from lake.iceberg.replacing import ReplacingSnapshot
from lake.iceberg.schema import SchemaFields

NAME_MAPPING = "schema.name-mapping.default"
COMMIT = "pipeline.commit"
AFTER_SEQ = "pipeline.after-seq"
UPTO_SEQ = "pipeline.upto-seq"
STATE = "pipeline.state"
"""The property with the state version of a table of `current`."""
FORM = "pipeline.form"
"""The property with the id of the form whose columns the table has."""
_PROPERTIES: Mapping[str, str] = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.previous-versions-max": "1",
    "write.metadata.metrics.default": "counts",
    "write.metadata.metrics.column.seq": "full",
    "write.metadata.metrics.column.committed_at": "full",
    "write.metadata.metrics.column.commit_lsn": "full",
}
"""Properties of new tables. Only these columns have bounds: others may have values that Python lacks (year 10000)."""


@dataclass(frozen=True)
class CommitStamp:
    """The number of a commit, the seqs of its tables before and after, and the number of the oldest commit to keep."""

    number: int
    after_seq: int
    upto_seq: int
    kept: int


@dataclass(frozen=True)
class TableChange:
    """A change of a table.

    `was`: its name before the commit; None: the table is new. `columns`: name → type; None: unchanged.

    `same`: column → its name before; None: the names are the same. `added`: locations of files. With `is_whole`, these
    replace all files, otherwise the files in `removed`.
    """

    identifier: Identifier
    was: Identifier | None
    location: str
    columns: Mapping[str, str] | None = None
    same: Mapping[str, str] | None = None
    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    is_whole: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TableChangeResult:
    """The result of a change. `oldest`: the commit of the oldest snapshot. `unused`: files that it no longer uses."""

    oldest: int
    unused: Sequence[str]


class TableCatalog(Protocol):
    """A catalog in which tables are found and changed.

    `written`: metadata files that the caller must write. `moved`: locations of metadata that the ledger must commit.
    """

    @property
    def has_renames(self) -> bool: ...
    @property
    def written(self) -> Mapping[str, bytes]: ...
    @property
    def moved(self) -> Mapping[Identifier, str | None]: ...
    def load(self, identifier: Identifier, called: Identifier) -> Table: ...
    def create(
        self, identifier: Identifier, schema: Schema, location: str, properties: Mapping[str, str]
    ) -> Transaction: ...
    def drop(self, identifier: Identifier) -> None: ...


def change_table(catalog: TableCatalog, change: TableChange, stamp: CommitStamp) -> TableChangeResult:
    """Change one table, in one commit to the catalog. Raises ExportError, which names the table."""
    try:
        return _change_table(catalog, change, stamp)
    except FAILURES as error:
        raise ExportError(f"the Iceberg table {'.'.join(change.identifier)}: {first_line(error)}") from error


def _change_table(catalog: TableCatalog, change: TableChange, stamp: CommitStamp) -> TableChangeResult:
    if change.was is None:
        given = schema.fields(change.columns or {}).schema
        transaction = catalog.create(change.identifier, given, change.location, _PROPERTIES)
        fields = schema.fields_of(transaction.table_metadata.schema())
        before: list[str] = []
    else:
        table = catalog.load(change.was, change.identifier)
        before = [table.metadata_location]
        transaction = Transaction(table)
        fields = _alter_columns(transaction, change)
    io = transaction._table.io
    transaction.set_properties({NAME_MAPPING: fields.name_mapping, **change.properties})
    if change.added or change.is_whole:
        _add_snapshot(transaction, io, change, stamp)
    oldest, unused = _expire_snapshots(transaction, io, stamp.kept, everything=fields.breaks)
    transaction.commit_transaction()
    return TableChangeResult(oldest, [*before, *unused])


def _alter_columns(transaction: Transaction, change: TableChange) -> SchemaFields:
    metadata = transaction.table_metadata
    before = schema.existing_fields(metadata.schema(), metadata.properties[NAME_MAPPING])
    if change.columns is None:
        return before
    fields = schema.fields(change.columns, before, change.same, metadata.last_column_id)
    if not schema.is_same(fields.schema, before.schema):
        number = 1 + max(known.schema_id for known in metadata.schemas)
        added = Schema(*fields.schema.fields, schema_id=number)
        transaction._apply((AddSchemaUpdate(schema=added), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})))
    return fields


def _add_snapshot(transaction: Transaction, io: FileIO, change: TableChange, stamp: CommitStamp) -> None:
    summary = {
        COMMIT: str(stamp.number),
        AFTER_SEQ: str(stamp.after_seq),
        UPTO_SEQ: str(stamp.upto_seq),
    }
    with _snapshot(transaction, io, change, summary) as snapshot:
        for location in change.added:
            snapshot.append_data_file(parquet_file_to_data_file(io, transaction.table_metadata, location))


def _snapshot(
    transaction: Transaction, io: FileIO, change: TableChange, summary: dict[str, str]
) -> AbstractContextManager[Any]:
    if change.is_whole:
        return ReplacingSnapshot.all_files(transaction, io, summary)
    if change.removed:
        return ReplacingSnapshot.files(transaction, io, summary, change.removed)
    return transaction.update_snapshot(snapshot_properties=summary).merge_append()


def _expire_snapshots(transaction: Transaction, io: FileIO, kept: int, *, everything: bool) -> tuple[int, list[str]]:
    """Remove snapshots that commits up to `kept` have replaced, or with `everything` all except the newest."""
    snapshots = sorted(transaction.table_metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    if not snapshots:
        return 0, []
    first = len(snapshots) - 1
    while not everything and first and _commit_number(snapshots[first]) > kept:
        first -= 1
    gone = snapshots[:first]
    unused: list[str] = []
    if gone:
        removed = {"snapshot-ids": [snapshot.snapshot_id for snapshot in gone]}
        transaction._apply((RemoveSnapshotsUpdate.model_validate(removed),))
        used = _manifests(snapshots[first], io)
        unused = [snapshot.manifest_list for snapshot in gone]
        unused += sorted({path for snapshot in gone for path in _manifests(snapshot, io)} - used)
    return _commit_number(snapshots[first]), unused


def _manifests(snapshot: Snapshot, io: FileIO) -> set[str]:
    return {manifest.manifest_path for manifest in snapshot.manifests(io)}


def _commit_number(snapshot: Snapshot) -> int:
    """Return the number of a snapshot's commit; 0 if another program made the snapshot."""
    return int(snapshot.summary.additional_properties.get(COMMIT, 0)) if snapshot.summary else 0
