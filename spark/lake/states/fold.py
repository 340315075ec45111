"""The fold on Spark: applies changes to a version of a table's state. The driver only gets counts, bucket numbers and
file names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lake.cluster import plain_errors
from lake.states import schema_cast, unchanged
from lake.states.plan import STATE, BucketFile, Folding, Life, buckets_of, emptied_at
from lake.states.writer import MOST_TASKS, WrittenBucket, bucket, empty, write

BYTES_PER_TASK = 16 * 1024 * 1024
"""How many compressed bytes of change files one task of a shuffle takes."""


@dataclass(frozen=True)
class Folded:
    """The result of a fold: new files, and files of the base that stay unchanged."""

    written: Sequence[WrittenBucket]
    kept: Sequence[BucketFile]
    buckets: int
    source_epoch: int
    source_table_oid: int


def fold(spark: SparkSession, root: Path, base_folder: Path, folding: Folding, folder: Path) -> Folded:
    """Write the buckets that changed to `folder`. Raises ExportError; the files in `folder` are then useless."""
    with plain_errors(), _settings(spark, folding.bytes):
        log = schema_cast.changes(spark, root, folding)
        lives, names = _lives(log, folding)
        emptied = emptied_at(lives, folding.base)
        base = folding.base if folding.base and folding.base.seq > emptied else None
        entries = log.where(F.col("seq") > emptied)
        with _persisted(_winners(entries)) as winners:
            buckets = buckets_of(base, winners.where("live").count())
            whole = base is None or not folding.same_columns or buckets != base.buckets
            touched = set(range(buckets)) if whole else _touched(winners, buckets)
            kept = [file for file in base.files if file.bucket not in touched] if base else []
            changed = [file for file in base.files if file.bucket in touched] if base else []
            before = (
                schema_cast.rows(spark, base_folder, changed, base.columns, folding.columns)
                if base and changed
                else None
            )
            rows = _rows(entries, winners, before, names, len(folding.columns))
            rewritten = folder / "rewritten"
            written = write(spark, rows, folding.columns, buckets, len(touched), rewritten) if touched else []
    if not written and not kept:
        written = [empty(folder, folding.columns)]
    last = max(lives, key=lambda life: life.last_seq, default=None) or folding.base
    epoch, oid = (last.source_epoch, last.source_table_oid) if last else (0, 0)
    return Folded(written, kept, buckets, epoch, oid)


def _lives(log: DataFrame, folding: Folding) -> tuple[list[Life], dict[int, str]]:
    """Which tables the changes are of, and which columns updates left out, by number."""
    truncated = F.max(F.when(F.col("action") == "truncate", F.col("seq")))
    found = (
        log.groupBy("source_epoch", "source_table_oid")
        .agg(
            F.max("seq").alias("last_seq"),
            F.coalesce(truncated, F.lit(0)).alias("truncated_seq"),
            F.array_distinct(F.flatten(F.collect_set("unchanged_columns"))).alias("omitted"),
        )
        .collect()
    )
    omitted = {name for row in found for name in row["omitted"]}
    names = {number: name for number, name in enumerate(folding.columns) if name in omitted}
    return [Life(*row[:4]) for row in found], names


def _winners(entries: DataFrame) -> DataFrame:
    """The last step of each key: record_pk, seq, and `live`: whether the row exists after it."""
    last = F.max(F.struct("seq", "live")).alias("last")
    return unchanged.steps(entries).groupBy("record_pk").agg(last).select("record_pk", "last.seq", "last.live")


def _touched(winners: DataFrame, buckets: int) -> set[int]:
    return {row[0] for row in winners.select(bucket(buckets)).distinct().collect()}


def _rows(
    entries: DataFrame, winners: DataFrame, before: DataFrame | None, names: Mapping[int, str], count: int
) -> DataFrame:
    """The new rows of the buckets whose old rows are in `before`."""
    rows = entries.join(winners.where("live").select("seq"), "seq")
    if names:
        rows = unchanged.filled(rows, entries, winners, before, names)
    columns = [*STATE, *(schema_cast.column(number) for number in range(count))]
    rows = rows.select(*columns)
    if before is not None:
        rows = rows.union(before.join(winners.select("record_pk"), "record_pk", "left_anti").select(*columns))
    text = F.when(F.size("exact") > 0, F.to_json("exact"))
    return rows.withColumn("exact", text)


@contextmanager
def _persisted(frame: DataFrame) -> Iterator[DataFrame]:
    try:
        yield frame.persist()
    finally:
        frame.unpersist()


@contextmanager
def _settings(spark: SparkSession, size: int) -> Iterator[None]:
    """As many shuffle tasks as the input needs; timestamps in the form that other readers of Parquet understand."""
    tasks = min(max(1, ceil(size / BYTES_PER_TASK)), MOST_TASKS)
    settings = {
        "spark.sql.shuffle.partitions": str(tasks),
        "spark.sql.adaptive.enabled": str(tasks > 1).lower(),  # in a small fold it costs more than it saves
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
