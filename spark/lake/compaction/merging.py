"""Merges files whose rows follow each other by seq into one file, by row groups, so that memory is bounded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext

from lake.changes import writer
from lake.errors import FileMismatchError, UnfitTargetError
from lake.storage import object_store, reading
from lake.storage.new_file import sha256, sync
from lake.storage.where import LakePath, ObjectPath

BATCH_ROWS = 32 * 1024


@dataclass(frozen=True)
class MergeSource:
    """A file in the lake that is merged, with its checksum and rows in the ledger."""

    path: str
    sha256: str
    rows: int


@dataclass(frozen=True)
class MergeTask:
    """A merge of `sources`, in order of seq, into one file at one of `targets`, which no reader uses before the end.

    In a bucket, each attempt uses another name: an upload that failed may have succeeded, or may still succeed later.
    """

    root: LakePath
    sources: Sequence[MergeSource]
    targets: Sequence[str]


@dataclass(frozen=True)
class MergeOutcome:
    """A merged file, complete and durable, and the name that it got. `refused`: the reason why there is no file."""

    target: str = ""
    bytes: int = 0
    sha256: str = ""
    refused: str | None = None


def merge(task: MergeTask) -> MergeOutcome:
    """Write the merged file. Runs on executors, or in the driver if that is faster."""
    with tempfile.TemporaryDirectory(prefix="pipeline-lake-") as here:
        try:
            return _merge(task, Path(here))
        except (FileMismatchError, UnfitTargetError, OSError, pa.ArrowException) as error:
            if isinstance(task.root, Path):
                (task.root / task.targets[0]).unlink(missing_ok=True)
            return MergeOutcome(refused=f"{task.targets[0]} was not made: {' '.join(str(error).split())}")


def _merge(task: MergeTask, here: Path) -> MergeOutcome:
    """Write the merged file. `here`: a folder for copies of objects, and for files before their upload."""
    at = task.root / task.targets[0]
    place = at if isinstance(at, Path) else here / "merged.parquet"
    place.parent.mkdir(parents=True, exist_ok=True)
    first = _checked_source(task, 0, here)
    with writer.open_writer(place, pq.read_schema(first)) as out:
        waiting: list[pa.RecordBatch] = []
        for batch in _batches(task, first, here):
            waiting.append(batch)
            if writer.is_full(waiting):
                _write(out, waiting)
                waiting = []
        if waiting:
            _write(out, waiting)
    rows = sum(source.rows for source in task.sources)
    if (written := pq.read_metadata(place).num_rows) != rows:
        raise FileMismatchError(f"rows written: {written} of {rows}")
    size, digest = place.stat().st_size, sha256(place)
    if isinstance(task.root, ObjectPath):
        return MergeOutcome(_upload(place, task.root, task.targets), size, digest)
    sync(place)
    sync(place.parent)
    return MergeOutcome(task.targets[0], size, digest)


def _upload(place: Path, root: ObjectPath, targets: Sequence[str]) -> str:
    """Upload the file under one of these names, and return the name. Raises OSError."""
    context = TaskContext.get()
    attempts = targets[min(context.attemptNumber() if context else 0, len(targets) - 1) :]
    for target in attempts:
        try:
            object_store.upload(place, root / target)
        except OSError:
            if target == attempts[-1]:
                raise
        else:
            return target
    raise AssertionError("the last attempt returns or raises")


def _checked_source(task: MergeTask, number: int, here: Path) -> Path:
    """Return a local path of a source, after its checksum was compared. Raises FileMismatchError."""
    source = task.sources[number]
    at = task.root / source.path
    if not isinstance(at, Path):
        at, found = here / "source.parquet", at
        reading.copy(found, at)
    if sha256(at) != source.sha256:
        raise FileMismatchError(f"{source.path} is not the file that was exported; restore it")
    return at


def _batches(task: MergeTask, first: Path, here: Path) -> Iterator[pa.RecordBatch]:
    """Read the rows of all sources. `first`: the local path of the first source."""
    schema, last = pq.read_schema(first), 0
    for number, source in enumerate(task.sources):
        with pq.ParquetFile(_checked_source(task, number, here) if number else first) as file:
            if not file.schema_arrow.equals(schema, check_metadata=True):
                raise FileMismatchError(f"{source.path} has other columns than {task.sources[0].path}")
            for batch in file.iter_batches(BATCH_ROWS):
                last = _require_order(batch.column("seq"), last, source)
                yield batch


def _require_order(seqs: pa.Array, last: int, source: MergeSource) -> int:
    """Return the last of these seqs. Raises FileMismatchError if they are not in order."""
    is_ordered = not pc.any(pc.less(seqs[1:], seqs[:-1])).as_py()
    if seqs[0].as_py() < last or not is_ordered:
        raise FileMismatchError(f"{source.path} is not in order of seq")
    return int(seqs[-1].as_py())


def _write(out: pq.ParquetWriter, waiting: Sequence[pa.RecordBatch]) -> None:
    group = pa.Table.from_batches(waiting)
    out.write_table(group, row_group_size=group.num_rows)
