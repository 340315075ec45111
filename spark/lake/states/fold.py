"""Folds a table on Spark: applies changes to a version of its state. The driver gets only counts, buckets and names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lake.running.cluster import plain_errors, run_tasks
from lake.states import object_frames, rekeying, schema_cast, unchanged_values
from lake.states.fold_tasks import FoldBase, FoldResult, WrittenBucket, fold_in_order
from lake.states.plan import STATE, BucketFile, PlannedFold, StateColumn, buckets_of
from lake.storage.new_file import FileTarget, new_file, sha256, sync
from lake.storage.where import LakePath, ObjectPath
from pyspark_sequin_events.reading import arrow_schema

BYTES_PER_TASK = 16 * 1024 * 1024
"""Compressed bytes of change files for one task of a Spark shuffle."""
MOST_TASKS = 2000


def fold(
    spark: SparkSession, root: LakePath, base_folder: LakePath, foldings: Sequence[PlannedFold], target: FileTarget
) -> FoldResult:
    """Write the buckets that changed to `target`. After an ExportError, the files there are useless."""

    def one(base: FoldBase | None, folding: PlannedFold, into: FileTarget) -> FoldResult:
        with plain_errors(), _settings(spark, folding.bytes):
            return _fold(spark, root, base, folding, into)

    return fold_in_order(one, base_folder, foldings, target)


def _fold(
    spark: SparkSession, root: LakePath, base: FoldBase | None, folding: PlannedFold, target: FileTarget
) -> FoldResult:
    log = schema_cast.read_changes(spark, root, folding)
    emptied, omitted = _omissions(log)
    if base is not None and base.seq < emptied:
        base = None
    entries = log.where(F.col("seq") > emptied)
    with _persisted(_winners(entries)) as winners:
        buckets = buckets_of((base.rows, base.buckets) if base else None, winners.where("live").count())
        is_anew = folding.rekeyed is not None or base is None or base.columns != folding.columns
        touched = (
            set(range(buckets)) if is_anew or base is None or buckets != base.buckets else _touched(winners, buckets)
        )
        kept = [] if base is None or is_anew else [file for file in base.files if file.bucket not in touched]
        changed = [file for file in base.files if file not in kept] if base else []
        before = _before(spark, base, changed, folding) if base and changed else None
        rows = _rows(entries, winners, before, omitted, folding.columns)
        rewritten = target / "rewritten"
        written = write_buckets(spark, rows, folding.columns, buckets, len(touched), rewritten) if touched else []
    if not written and not kept:
        written = [empty_bucket(target, folding.schema)]
    return FoldResult(written, kept, buckets)


def _before(spark: SparkSession, base: FoldBase, files: Sequence[BucketFile], folding: PlannedFold) -> DataFrame:
    """Return the rows of the base, with the record_pk that the present key makes."""
    if folding.rekeyed is None:
        return schema_cast.read_rows(spark, base.folder, files, base.columns, folding.columns)
    rows = schema_cast.read_rows(spark, base.folder, files, base.columns, folding.columns_before)
    return schema_cast.retype_rows(rekeying.rekey_rows(rows, folding.rekeyed), folding.columns_before, folding.columns)


def _omissions(log: DataFrame) -> tuple[int, list[str]]:
    """Return the seq of the last truncate, 0 for none, and the columns that updates left out."""
    truncated = F.max(F.when(F.col("action") == "truncate", F.col("seq")))
    found = log.agg(
        F.coalesce(truncated, F.lit(0)).alias("truncated"),
        F.array_distinct(F.flatten(F.collect_set("unchanged_columns"))).alias("omitted"),
    ).collect()[0]
    return found["truncated"], sorted(found["omitted"])


def _winners(entries: DataFrame) -> DataFrame:
    """Return the last step of each key: record_pk, seq, and `live`: true if the row exists after the step."""
    last = F.max(F.struct("seq", "live")).alias("last")
    return unchanged_values.steps(entries).groupBy("record_pk").agg(last).select("record_pk", "last.seq", "last.live")


def _touched(winners: DataFrame, buckets: int) -> set[int]:
    return {row[0] for row in winners.select(bucket(buckets)).distinct().collect()}


def _rows(
    entries: DataFrame,
    winners: DataFrame,
    before: DataFrame | None,
    omitted: Sequence[str],
    columns: Sequence[StateColumn],
) -> DataFrame:
    """Return the new rows of the buckets whose old rows are in `before`."""
    rows = entries.join(winners.where("live").select("seq"), "seq")
    known = [name for name in omitted if name in rows.columns]
    if known:
        rows = unchanged_values.fill_unchanged(rows, entries, winners, before, known)
    selected = [*STATE, *(schema_cast.column(column.number) for column in columns)]
    rows = rows.select(*selected)
    if before is not None:
        rows = rows.union(before.join(winners.select("record_pk"), "record_pk", "left_anti").select(*selected))
    names = {schema_cast.column(column.number): column.name for column in columns}
    return rows.withColumn("exact", _by_name(names))


def _by_name(names: Mapping[str, str]) -> SparkColumn:
    """Return `exact` as it is stored: JSON, under the names of the columns; null if it is empty."""
    if not names:
        return F.lit(None).cast("string")
    called = F.create_map(*(F.lit(text) for pair in names.items() for text in pair))
    return F.when(F.size("exact") > 0, F.to_json(F.transform_keys("exact", lambda name, _: called[name])))


@contextmanager
def _persisted(frame: DataFrame) -> Iterator[DataFrame]:
    try:
        yield frame.persist()
    finally:
        frame.unpersist()


@contextmanager
def _settings(spark: SparkSession, size: int) -> Iterator[None]:
    """Set the shuffle tasks that the input needs, and a form of timestamps that other readers of Parquet understand."""
    tasks = min(max(1, ceil(size / BYTES_PER_TASK)), MOST_TASKS)
    settings = {
        "spark.sql.shuffle.partitions": str(tasks),
        "spark.sql.adaptive.enabled": str(tasks > 1).lower(),  # in a small fold, it costs more time than it saves
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    }
    before = {name: str(spark.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def write_buckets(
    spark: SparkSession, rows: DataFrame, columns: Sequence[StateColumn], buckets: int, most: int, target: FileTarget
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
    return run_tasks(spark, seal_bucket, files, lambda _: None) if files else []


def bucket(buckets: int) -> SparkColumn:
    """Return the bucket of a row, by the CRC-32 that Java, zlib and zip compute."""
    return (F.crc32("record_pk") % buckets).cast("int")


def seal_bucket(path: Path) -> WrittenBucket:
    """Make a file durable, and describe the file. Runs on executors."""
    found = re.search(r"=(\d+)$", path.parent.name)
    sync(path)
    rows = pq.read_metadata(path).num_rows
    return WrittenBucket(int(found[1]) if found else 0, str(path), rows, path.stat().st_size, sha256(path))


def empty_bucket(target: FileTarget, columns: Mapping[str, str]) -> WrittenBucket:
    """Write a file without rows, so that readers find the schema."""
    with new_file(target) as made:
        pq.write_table(arrow_schema({**STATE, **columns}).empty_table(), made.path, compression="zstd")
        finished = made.finish()
    return WrittenBucket(0, finished.at, 0, finished.bytes, finished.sha256)
