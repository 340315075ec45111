"""Reads the changes of a fold inside a task: first the columns that decide which changes count, then their values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake.errors import UnclearHistoryError
from lake.states.plan import ChangeReading, ChangeSource, PlannedFold
from lake.storage.reading import parquet
from lake.storage.where import LakePath
from lake.tables.forms import ReplicationPlace
from pyspark_sequin_events.types import arrow_type

_READ: Mapping[str, str] = {
    "seq": "bigint",
    "action": "string",
    "record_pk": "string",
    "previous_record_pk": "string",
    "unchanged_columns": "array<string>",
    "source_epoch": "int",
    "source_table_oid": "bigint",
    "event_metadata": "string",
    "commit_lsn": "bigint",
    "commit_idx": "int",
}
_KEPT = ("seq", "action", "record_pk", "previous_record_pk", "unchanged_columns")
_SCHEMA = pa.schema([*((name, arrow_type(_READ[name])) for name in _KEPT), ("part", pa.int32()), ("row", pa.uint64())])


class TableTooLargeError(Exception):
    """The table is too large for a task."""


@dataclass(frozen=True)
class RowGroupChanges:
    """The changes of one reading in one row group of a file."""

    path: LakePath
    group: int
    source: ChangeSource
    reading: ChangeReading


@dataclass(frozen=True)
class ChangeLog:
    """The changes after the last truncate, whose seq is `emptied` (0: none), in order of seq.

    Columns of `changes`: seq, action, record_pk, previous_record_pk, unchanged_columns; `part`: the index in `parts`;
    `row`: the place in the row group.
    """

    parts: Sequence[RowGroupChanges]
    changes: pa.Table
    emptied: int


def read_changes(root: LakePath, folding: PlannedFold, most: int) -> ChangeLog:
    """Read the changes of a fold.

    Raises UnclearHistoryError if one of them is refused, and TableTooLargeError if there are more than `most`.
    """
    parts: list[RowGroupChanges] = []
    tables = [_SCHEMA.empty_table()]
    rows = 0
    for part, held, mask in _masked(root, folding):
        kept = pc.indices_nonzero(mask)
        if rows + len(kept) > most:
            raise TableTooLargeError
        if not len(kept):
            continue
        rows += len(kept)
        number = pa.repeat(pa.scalar(len(parts), pa.int32()), len(kept))
        columns = [held.column(name).take(kept) for name in _KEPT]
        tables.append(pa.table([*columns, number, kept], schema=_SCHEMA))
        parts.append(part)
    changes = pa.concat_tables(tables).combine_chunks()
    seqs = changes.column("seq")
    if pc.any(pc.less(seqs[1:], seqs[:-1])).as_py():  # the seqs of two files of one table may overlap
        changes = changes.sort_by("seq").combine_chunks()
    emptied = pc.max(changes.column("seq").filter(pc.equal(changes.column("action"), "truncate"))).as_py() or 0
    if emptied:
        changes = changes.filter(pc.greater(changes.column("seq"), emptied)).combine_chunks()
    return ChangeLog(parts, changes, emptied)


def columns_in(file: pq.ParquetFile, group: int, columns: Mapping[str, str]) -> pa.Table:
    """Read columns of a row group in these types (name → type). A column that the file lacks is null."""
    present = [name for name in columns if name in file.schema_arrow.names]
    found = file.read_row_group(group, columns=present, use_threads=False)
    arrays = [
        found.column(name).cast(arrow_type(kind))
        if name in present
        else pa.chunked_array([pa.nulls(found.num_rows, arrow_type(kind))])
        for name, kind in columns.items()
    ]
    return pa.table(arrays, names=list(columns))


def _masked(root: LakePath, folding: PlannedFold) -> Iterator[tuple[RowGroupChanges, pa.Table, pa.ChunkedArray]]:
    """Yield each part, the columns read of its row group, and a mask of the rows that are its changes."""
    for source in folding.sources:
        for path in source.paths:
            with parquet(root / path) as file:
                for group in range(file.num_row_groups):
                    held = columns_in(file, group, _READ)
                    wanted = _and(_of_table(held, source), _in_range(held, folding), _has_content(held))
                    for reading in source.readings:
                        mask = _and(wanted, _between(held, reading))
                        if reading.refused and pc.any(mask).as_py():
                            raise UnclearHistoryError(reading.refused)
                        if not reading.has_key:
                            mask = _and(mask, pc.equal(held.column("action"), "truncate"))
                        yield RowGroupChanges(root / path, group, source, reading), held, mask


def _and(*masks: pa.ChunkedArray) -> pa.ChunkedArray:
    return reduce(pc.and_kleene, masks)


def _of_table(held: pa.Table, source: ChangeSource) -> pa.ChunkedArray:
    epochs, oids = held.column("source_epoch"), held.column("source_table_oid")
    return reduce(pc.or_, (pc.and_(pc.equal(epochs, epoch), pc.equal(oids, oid)) for epoch, oid in source.tables))


def _in_range(held: pa.Table, folding: PlannedFold) -> pa.ChunkedArray:
    seqs = held.column("seq")
    return pc.and_(pc.greater(seqs, folding.after), pc.less_equal(seqs, folding.seq))


def _between(held: pa.Table, reading: ChangeReading) -> pa.ChunkedArray:
    """Return a mask: True if a change is within the positions of the reading.

    Changes without one come before all others.
    """
    here = pc.is_valid(held.column("seq"))
    if reading.since is not None:
        here = _and(here, _not_before(held, reading.since))
    if reading.until is not None:
        here = _and(here, pc.invert(_not_before(held, reading.until)))
    return here


def _not_before(held: pa.Table, place: ReplicationPlace) -> pa.ChunkedArray:
    epochs, lsns, idxs = (held.column(name) for name in ("source_epoch", "commit_lsn", "commit_idx"))
    at = pc.and_kleene(pc.equal(lsns, place.lsn), pc.greater_equal(idxs, place.idx))
    within = pc.or_kleene(pc.greater(lsns, place.lsn), at)
    found = pc.or_kleene(pc.greater(epochs, place.epoch), pc.and_kleene(pc.equal(epochs, place.epoch), within))
    return pc.fill_null(found, fill_value=False)


def _has_content(held: pa.Table) -> pa.ChunkedArray:
    """Return a mask: False for the event in place of a dead letter, and for an event that was retried too late."""
    marks = held.column("event_metadata")
    marked = pc.fill_null(pc.match_substring_regex(marks, '"(parked|outdated)"'), fill_value=False)
    if not pc.any(marked).as_py():
        return pc.is_valid(held.column("seq"))
    actions = held.column("action")
    return pa.chunked_array(
        [[_marks_content(*pair) for pair in zip(marks.to_pylist(), actions.to_pylist(), strict=True)]]
    )


def _marks_content(marks: str | None, action: str) -> bool:
    found = json.loads(marks) if marks else None
    if not isinstance(found, dict):
        return True
    parked = found.get("parked") is not None and action in ("insert", "update", "read")
    return not parked and found.get("outdated") is None
