"""Values that JSON parsers refuse by default: the current state has them, or its fold fails; they are never null."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from lake.states import schema_cast
from lake.states.plan import BucketFile

pytestmark = pytest.mark.xdist_group("spark")  # for --dist loadgroup: one JVM
LONG = "x" * 20_000_001
DIGITS = "7" * 1_001
DEEP = "[" * 1_001 + "]" * 1_001


def state(spark: SparkSession, folder: Path, exact: str) -> DataFrame:
    """One row of a state whose column `n` is null, as its text is in `exact`."""
    row = {"record_pk": "1", "seq": 1, "committed_at": datetime(2026, 1, 1, tzinfo=UTC), "exact": exact, "n": None}
    kinds = [pa.string(), pa.int64(), pa.timestamp("us", "UTC"), pa.string(), pa.float64()]
    pq.write_table(pa.Table.from_pylist([row], pa.schema(list(zip(row, kinds, strict=True)))), folder / "a.parquet")
    files = [BucketFile("a.parquet", 0, 1, 1, "")]
    return schema_cast.rows(spark, folder, files, {"n": "double"}, {"n": "double"})


def only(frame: DataFrame) -> Row:
    (found,) = frame.collect()
    return found


def test_a_long_text_stays(spark: SparkSession, tmp_path: Path) -> None:
    frame = state(spark, tmp_path, json.dumps({"n": "NaN", "other": LONG}))
    found = only(frame.select(frame.exact["n"].alias("n"), F.length(frame.exact["other"]).alias("length")))
    assert (found.n, found.length) == ("NaN", len(LONG))


def test_a_text_that_is_no_json_fails_the_fold(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="MALFORMED_RECORD"):
        state(spark, tmp_path, '{"n": ').select("exact").collect()


def test_rows_that_are_stored_as_json_keep_long_values(spark: SparkSession) -> None:
    texts = {"long": json.dumps(LONG), "digits": DIGITS, "deep": DEEP, "none": "null"}
    record = "{" + ", ".join(f'"{name}": {text}' for name, text in texts.items()) + "}"
    change: dict[str, Any] = {**dict.fromkeys(schema_cast.CHANGE), "record": record}
    kinds = ", ".join(f"{name} {kind}" for name, kind in {**schema_cast.CHANGE, "record": "string"}.items())
    frame = schema_cast.from_record(
        spark.createDataFrame([tuple(change.values())], kinds), dict.fromkeys(texts, "string")
    )
    found = only(frame.select(F.length("c0").alias("long"), "c1", "c2", "c3"))
    assert (found.long, found.c1, found.c2, found.c3) == (len(LONG), DIGITS, DEEP, None)
