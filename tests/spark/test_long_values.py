"""Values that JSON parsers refuse by default: the current state has them, or its fold fails; they are never null."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from lake.states import schema_cast
from lake.states.plan import BucketFile, StateColumn

pytestmark = pytest.mark.xdist_group("spark")  # for --dist loadgroup: one JVM
LONG = "x" * 20_000_001
DIGITS = "7" * 1_001
DEEP = "[" * 1_001 + "]" * 1_001


def state(spark: SparkSession, folder: Path, exact: str) -> DataFrame:
    """One row of a state whose column `n` is null, as its text is in `exact`."""
    row = {"record_pk": "1", "seq": 1, "committed_at": datetime(2026, 1, 1, tzinfo=UTC), "exact": exact}
    row |= {"n": None, "other": None}
    kinds = [pa.string(), pa.int64(), pa.timestamp("us", "UTC"), pa.string(), pa.float64(), pa.string()]
    pq.write_table(pa.Table.from_pylist([row], pa.schema(list(zip(row, kinds, strict=True)))), folder / "a.parquet")
    files = [BucketFile("a.parquet", 0, 1, 1, "")]
    had = [StateColumn(0, "n", "double"), StateColumn(1, "other", "string")]
    return schema_cast.read_rows(spark, folder, files, had, had)


def only(frame: DataFrame) -> Row:
    (found,) = frame.collect()
    return found


def test_a_long_text_stays(spark: SparkSession, tmp_path: Path) -> None:
    frame = state(spark, tmp_path, json.dumps({"n": "NaN", "other": LONG}))
    found = only(frame.select(frame.exact["c0"].alias("n"), F.length(frame.exact["c1"]).alias("length")))
    assert (found.n, found.length) == ("NaN", len(LONG))


def test_a_text_that_is_no_json_fails_the_fold(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises((PySparkException, Py4JError), match="MALFORMED_RECORD"):
        state(spark, tmp_path, '{"n": ').select("exact").collect()


def stored(spark: SparkSession, folder: Path, **texts: str) -> DataFrame:
    """One row that is stored as JSON only, with these JSON texts; its columns c0, c1, … in their order."""
    record = "{" + ", ".join(f'"{name}": {text}' for name, text in texts.items()) + "}"
    pq.write_table(pa.table({"record": [record]}), folder / "a.parquet")
    frame = spark.read.parquet(str(folder / "a.parquet"))
    others = [F.lit(None).cast(kind).alias(name) for name, kind in schema_cast.CHANGE.items()]
    return schema_cast.from_record(
        frame.select("record", *others), [StateColumn(number, name, "string") for number, name in enumerate(texts)]
    )


def test_rows_that_are_stored_as_json_keep_long_values(spark: SparkSession, tmp_path: Path) -> None:
    frame = stored(spark, tmp_path, long=json.dumps(LONG), digits=DIGITS, none="null")
    found = only(frame.select(F.length("c0").alias("long"), "c1", "c2"))
    assert (found.long, found.c1, found.c2) == (len(LONG), DIGITS, None)


def test_what_is_nested_too_deeply_fails_the_fold(spark: SparkSession, tmp_path: Path) -> None:
    """Jackson writes no more than 1,000 levels (StreamWriteConstraints), which no option of Spark changes."""
    with pytest.raises((PySparkException, Py4JError), match="MALFORMED_RECORD"):
        stored(spark, tmp_path, deep=DEEP).select("c0").collect()
