"""Writes a piece of the log as Parquet files, one for each date. Runs on executors; the driver publishes the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake.storage import layout
from lake.storage.new_file import FileTarget, NewFile
from lake.storage.where import ObjectPath, relative
from pyspark_sequin_events.reading import RangeRead, arrow_schema, read_batches

GROUP_ROWS = 256 * 1024
"""Rows of a row group: the most that a task keeps in memory, besides the batch that it reads."""
ChangePlace = tuple[int, int]
"""The place of a change in its epoch: commit_lsn and commit_idx."""
GROUP_BYTES = 64 * 1024 * 1024
"""Bytes after which a row group of wide rows ends."""


@dataclass(frozen=True)
class ExportPiece:
    """The rows that one task reads, their table, and the place where the task writes.

    `source_id`, `source_epoch` and `table_oid`: the table whose changes these are; the oid is 0 for messages.
    """

    read: RangeRead
    dataset: str
    version: int
    source_id: str
    source_epoch: int
    table_oid: int
    target: FileTarget


@dataclass(frozen=True)
class WrittenFile:
    """A file of a piece: complete, durable, and not listed yet.

    `first_lsn` and `first_idx`: the least place of a change. `last_lsn` and `last_idx`: the greatest place, without
    changes that were retried, since these are out of order. Places are None if no change has one. `last_committed_at`:
    the latest commit time of a change, in ISO 8601. `place`: the path in the lake, if the file is there already, as it
    is in a bucket.
    """

    path: str
    dataset: str
    version: int
    source_id: str
    source_epoch: int
    table_oid: int
    date: str
    rows: int
    bytes: int
    sha256: str
    first_seq: int
    last_seq: int
    first_lsn: int | None
    first_idx: int | None
    last_lsn: int | None
    last_idx: int | None
    last_committed_at: str
    place: str | None = None


def write(piece: ExportPiece) -> list[WrittenFile]:
    """Read a piece and write it, sorted by seq, one file for each UTC date of committed_at; no file if it is empty."""
    schema = arrow_schema(piece.read.schema)
    days: dict[date, _Day] = {}
    try:
        for batch in read_batches(piece.read):
            for day, part in _by_day(batch):
                if day not in days:
                    days[day] = _Day(piece, schema, day)
                days[day].add(part)
        return [day.finish() for day in days.values()]
    finally:
        for opened in days.values():
            opened.close()


class _Day:
    """The file of one date. A second attempt at the same piece writes to other names."""

    def __init__(self, piece: ExportPiece, schema: pa.Schema, day: date) -> None:
        self._piece = piece
        self._day = day
        self._file = NewFile(piece.target)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._first = self._last = 0
        self._first_place: ChangePlace | None = None
        self._last_place: ChangePlace | None = None
        self._latest = datetime.min.replace(tzinfo=UTC)
        self._writer = open_writer(self._file.path, schema)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows that follow all rows added before."""
        seqs = batch.column("seq")
        self._first = self._first or seqs[0].as_py()
        self._last = seqs[-1].as_py()
        self._rows += batch.num_rows
        self._first_place = min(filter(None, (self._first_place, first_place(batch))), default=None)
        self._latest = max(self._latest, pc.max(batch.column("committed_at")).as_py())
        self._last_place = max(filter(None, (self._last_place, last_place(batch))), default=None)
        self._waiting.append(batch)
        if is_full(self._waiting):
            self._write_group()

    def finish(self) -> WrittenFile:
        """Complete the file, make it durable, and describe it."""
        if self._waiting:
            self._write_group()
        self._writer.close()
        piece, folder, day = self._piece, self._piece.target.folder, self._day.isoformat()
        place = layout.change_file(piece.dataset, piece.version, day, self._first, self._last)
        made = self._file.finish(place.removesuffix(".parquet"))
        return WrittenFile(
            path=made.at,
            dataset=piece.dataset,
            version=piece.version,
            source_id=piece.source_id,
            source_epoch=piece.source_epoch,
            table_oid=piece.table_oid,
            date=day,
            rows=self._rows,
            bytes=made.bytes,
            sha256=made.sha256,
            first_seq=self._first,
            last_seq=self._last,
            first_lsn=self._first_place[0] if self._first_place else None,
            first_idx=self._first_place[1] if self._first_place else None,
            last_lsn=self._last_place[0] if self._last_place else None,
            last_idx=self._last_place[1] if self._last_place else None,
            last_committed_at=self._latest.isoformat(),
            place=relative(made.at, folder) if isinstance(folder, ObjectPath) else None,
        )

    def close(self) -> None:
        """Close the file, finished or not, and remove local remains."""
        self._writer.close()
        self._file.discard()

    def _write_group(self) -> None:
        group = pa.Table.from_batches(self._waiting)
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._waiting = []


def open_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Open a new file of changes, whose rows are sorted by seq."""
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        write_page_index=True,
        store_decimal_as_integer=True,
        sorting_columns=[pq.SortingColumn(schema.get_field_index("seq"))],
    )


def is_full(waiting: Sequence[pa.RecordBatch]) -> bool:
    """Return True if these batches are enough for a row group of a file of changes."""
    rows = sum(batch.num_rows for batch in waiting)
    size: int = sum(batch.nbytes for batch in waiting)
    return rows >= GROUP_ROWS or size >= GROUP_BYTES


def first_place(changes: pa.RecordBatch | pa.Table) -> ChangePlace | None:
    """Return the least (commit_lsn, commit_idx) of changes; None if no change has one."""
    lsn = pc.min(changes.column("commit_lsn"))
    if not lsn.is_valid:
        return None
    idx = pc.min(changes.column("commit_idx").filter(pc.equal(changes.column("commit_lsn"), lsn)))
    return lsn.as_py(), idx.as_py() or 0


def last_place(changes: pa.RecordBatch | pa.Table) -> ChangePlace | None:
    """Return the greatest (commit_lsn, commit_idx) of changes that were not retried; None if no change has one."""
    marks = changes.column("event_metadata")
    if marks.null_count < len(marks):
        changes = changes.filter(pc.invert(pc.fill_null(pc.match_substring(marks, '"retried"'), fill_value=False)))
    lsn = pc.max(changes.column("commit_lsn"))
    if not lsn.is_valid:
        return None
    idx = pc.max(changes.column("commit_idx").filter(pc.equal(changes.column("commit_lsn"), lsn)))
    return lsn.as_py(), idx.as_py() or 0


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[date, pa.RecordBatch]]:
    days = batch.column("committed_at").cast(pa.date32())
    bounds = pc.min_max(days).as_py()
    if bounds["min"] == bounds["max"]:
        yield bounds["min"], batch
        return
    for day in pc.unique(days):
        yield day.as_py(), batch.filter(pc.equal(days, day))
