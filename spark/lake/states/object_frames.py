"""Reads and writes DataFrames in a bucket. Tasks use pyarrow, since Spark reads `s3://` only with jars of no wheel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from lake.errors import ExportError
from lake.states import file_form
from lake.states.fold_tasks import WrittenBucket
from lake.storage.new_file import FileTarget, NewFile
from lake.storage.reading import parquet
from lake.storage.where import ObjectPath
from pyspark_sequin_events.frame import spark_schema
from pyspark_sequin_events.reading import arrow_schema
from pyspark_sequin_events.types import arrow_type

_MOST_TASKS = 2000
_REMEDY = "install it beside PySpark: pip install 'pandas>=2.2'"
_ROWS = 16 * 1024
"""Rows of a batch that goes from a task to Spark."""
_WRITTEN = "bucket int, path string, rows bigint, bytes bigint, sha256 string"


def read(spark: SparkSession, columns: Mapping[str, str], files: Sequence[ObjectPath]) -> DataFrame:
    """Read the rows of files, with these columns (name → type). A column that a file lacks is null."""
    if find_spec("pandas") is None:  # PySpark needs it for mapInArrow
        raise ExportError(f"a large table of a lake in a bucket needs pandas; {_REMEDY}")
    numbers = spark.range(0, len(files), 1, min(len(files), _MOST_TASKS))
    return numbers.mapInArrow(partial(_read, list(files), dict(columns)), spark_schema(columns))


def _read(
    files: Sequence[ObjectPath], columns: Mapping[str, str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the files with these numbers. Runs on executors."""
    schema = arrow_schema(columns)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with parquet(files[number]) as file:
                present = [name for name in columns if name in file.schema_arrow.names]
                for found in file.iter_batches(_ROWS, columns=present, use_threads=False):
                    arrays = [
                        found.column(name).cast(arrow_type(kind))
                        if name in present
                        else pa.nulls(found.num_rows, arrow_type(kind))
                        for name, kind in columns.items()
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def write(ordered: DataFrame, number: str, columns: Mapping[str, str], target: FileTarget) -> list[WrittenBucket]:
    """Write a file for each bucket. `number`: the column of the bucket, whose rows follow each other in a partition."""
    rows = ordered.mapInArrow(partial(_write, number, dict(columns), target), _WRITTEN).collect()
    return [WrittenBucket(**row.asDict()) for row in rows]


def _write(
    number: str, columns: Mapping[str, str], target: FileTarget, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write a file for each bucket, and yield its description. Runs on executors."""
    schema = arrow_schema(columns)
    opened: _Bucket | None = None
    try:
        for batch in batches:
            for bucket, part in _by_bucket(batch, number):
                if opened is None or opened.bucket != bucket:
                    if opened is not None:
                        yield opened.finish()
                    opened = _Bucket(bucket, NewFile(target), schema)
                opened.add(part)
        if opened is not None:
            yield opened.finish()
    finally:
        if opened is not None:
            opened.discard()


def _by_bucket(batch: pa.RecordBatch, number: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    buckets = batch.column(number)
    rest = batch.drop_columns([number])
    for bucket in pc.unique(buckets):
        yield bucket.as_py(), rest.filter(pc.equal(buckets, bucket))


@dataclass
class _Bucket:
    """The file of a bucket that is being written."""

    bucket: int
    file: NewFile
    schema: pa.Schema
    rows: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._writer = pq.ParquetWriter(self.file.path, self.schema, **file_form.options())

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self.waiting.append(batch)
        waiting = sum(part.num_rows for part in self.waiting)
        if waiting >= file_form.GROUP_ROWS or sum(part.nbytes for part in self.waiting) >= file_form.GROUP_BYTES:
            self._write_group()

    def finish(self) -> pa.RecordBatch:
        """Complete the file, make it durable, and describe it."""
        if self.waiting:
            self._write_group()
        self._writer.close()
        made = self.file.finish()
        values = {"path": made.at, "rows": self.rows, "bytes": made.bytes, "sha256": made.sha256}
        row = {"bucket": pa.array([self.bucket], pa.int32()), **{name: [value] for name, value in values.items()}}
        return pa.RecordBatch.from_pydict(row)

    def discard(self) -> None:
        """Close the file, finished or not, and remove local remains."""
        self._writer.close()
        self.file.discard()

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self.waiting)
        group = pa.table([table.column(each.name).cast(each.type) for each in self.schema], schema=self.schema)
        self._writer.write_table(group, row_group_size=group.num_rows)
        self.waiting = []
