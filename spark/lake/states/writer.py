"""Buckets of a state as Parquet files, one each: whole and durable before anybody publishes them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lake.cluster import each
from lake.folder import sha256, sync
from lake.states import schema_cast
from lake.states.plan import STATE
from pyspark_sequin_events.reading import arrow_schema

MOST_TASKS = 2000


@dataclass(frozen=True)
class WrittenBucket:
    """A file that is whole and durable, and not where readers look."""

    bucket: int
    path: str
    rows: int
    bytes: int
    sha256: str


def write(
    spark: SparkSession, rows: DataFrame, columns: Mapping[str, str], buckets: int, most: int, folder: Path
) -> list[WrittenBucket]:
    """Rows of a fold, sorted by key, one file for each bucket that has any; `most` of `buckets` do."""
    number = "bucket"
    while number in {name.lower() for name in columns}:
        number += "_"
    renamed = [F.col(schema_cast.column(at)).alias(name) for at, name in enumerate(columns)]
    placed = rows.select(bucket(buckets).alias(number), *STATE, *renamed).repartition(min(most, MOST_TASKS), number)
    ordered = placed.sortWithinPartitions(number, "record_pk")
    ordered.write.option("maxRecordsPerFile", 0).partitionBy(number).parquet(str(folder))
    files = sorted(folder.glob(f"{number}=*/*.parquet"))
    return each(spark, seal, files, lambda _: None) if files else []


def bucket(buckets: int) -> Column:
    """Of a row: crc32 as Java, zlib and zip have it."""
    return (F.crc32("record_pk") % buckets).cast("int")


def seal(path: Path) -> WrittenBucket:
    """Make a file durable. Runs on executors."""
    found = re.search(r"=(\d+)$", path.parent.name)
    sync(path)
    rows = pq.read_metadata(path).num_rows
    return WrittenBucket(int(found[1]) if found else 0, str(path), rows, path.stat().st_size, sha256(path))


def empty(folder: Path, columns: Mapping[str, str]) -> WrittenBucket:
    """A file without rows, so that readers find a schema."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid.uuid4().hex}.parquet"
    pq.write_table(arrow_schema({**STATE, **columns}).empty_table(), path, compression="zstd")
    return seal(path)
