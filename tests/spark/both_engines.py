"""Folds what is pending by both engines, into separate folders, and compares all that readers see."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lake.folding import current, engines
from lake.folding.current import PendingState
from lake.folding.small import fold as small
from lake.states.fold_tasks import FoldResult, FoldTask
from lake.storage.identity import Lake
from lake.storage.new_file import FileTarget


def assert_equal(spark: SparkSession, lake: Lake, pending: Sequence[PendingState]) -> int:
    """The files of each table: buckets, rows in order, types. Returns how many tables both engines fold."""
    compared = 0
    for each in pending:
        if each.error is None and engines.is_small(each.foldings):
            compared += 1
            with tempfile.TemporaryDirectory() as folder:
                made = [_folded(spark, lake, each, Path(folder) / name) for name in ("small", "frames")]
            assert made[0] == made[1], each.dataset
    return compared


def _folded(spark: SparkSession, lake: Lake, pending: PendingState, folder: Path) -> dict[str, Any]:
    task = FoldTask(lake.root, current.base_folder(lake, pending.foldings[0]), pending.foldings, FileTarget(folder))
    made = small.fold(task) if folder.name == "small" else engines.fold_large(spark, task)
    assert isinstance(made, FoldResult), made
    files = {written.bucket: pq.ParquetFile(written.path) for written in made.written}
    return {
        "buckets": made.buckets,
        "kept": sorted(file.name for file in made.kept),
        "types": [(field.name, str(field.type)) for field in next(iter(files.values())).schema_arrow] if files else [],
        "rows": {bucket: repr(_values(file.read())) for bucket, file in sorted(files.items())},
        "bytes": all(Path(written.path).stat().st_size == written.bytes for written in made.written),
    }


def _values(table: pa.Table) -> list[list[Any]]:
    """Times as numbers: some are none of Python's."""
    return [column.cast(_as_number(column.type)).to_pylist() for column in table.columns]


def _as_number(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_as_number(kind.value_type))
    return pa.int32() if pa.types.is_date(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind
