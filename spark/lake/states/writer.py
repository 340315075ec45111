"""Writes the buckets of a state as Parquet files, one each: whole and durable before they are published."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lake.running.cluster import each
from lake.states import object_frames, schema_cast
from lake.states.folded import WrittenBucket
from lake.states.plan import STATE
from lake.states.plan import Column as TableColumn
from lake.storage.new_file import Target, new_file, sha256, sync
from lake.storage.where import ObjectPath
from pyspark_sequin_events.reading import arrow_schema

MOST_TASKS = 2000


def write(
    spark: SparkSession, rows: DataFrame, columns: Sequence[TableColumn], buckets: int, most: int, target: Target
) -> list[WrittenBucket]:
    """Write the rows of a fold, sorted by key, one file for each bucket with rows: at most `most` of `buckets`."""
    number = "bucket"
    while number in {column.name.lower() for column in columns}:
        number += "_"
    renamed = [F.col(schema_cast.column(column.number)).alias(column.name) for column in columns]
    placed = rows.select(bucket(buckets).alias(number), *STATE, *renamed).repartition(min(most, MOST_TASKS), number)
    ordered = placed.sortWithinPartitions(number, "record_pk")
    if isinstance(target.folder, ObjectPath):
        types = {**STATE, **{column.name: column.type for column in columns}}
        return object_frames.write(ordered, number, types, target)
    folder = target.folder
    ordered.write.option("maxRecordsPerFile", 0).partitionBy(number).parquet(str(folder))
    files = sorted(folder.glob(f"{number}=*/*.parquet"))
    return each(spark, seal, files, lambda _: None) if files else []


def bucket(buckets: int) -> Column:
    """The bucket of a row, by the CRC-32 that Java, zlib and zip compute."""
    return (F.crc32("record_pk") % buckets).cast("int")


def seal(path: Path) -> WrittenBucket:
    """Make a file durable, and describe it. Runs on executors."""
    found = re.search(r"=(\d+)$", path.parent.name)
    sync(path)
    rows = pq.read_metadata(path).num_rows
    return WrittenBucket(int(found[1]) if found else 0, str(path), rows, path.stat().st_size, sha256(path))


def empty(target: Target, columns: Mapping[str, str]) -> WrittenBucket:
    """Write a file without rows, so that readers find the schema."""
    with new_file(target) as made:
        pq.write_table(arrow_schema({**STATE, **columns}).empty_table(), made.path, compression="zstd")
        finished = made.finish()
    return WrittenBucket(0, finished.at, 0, finished.bytes, finished.sha256)
