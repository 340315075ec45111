"""Every kind of type, from a real source to Parquet: no value differs from the source's, on Postgres 18 and on 15."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from pyspark_sequin_events.types import arrow_type, element
from tests.fixtures.postgres import NEWEST, Cluster
from tests.spark import fidelity
from tests.spark.conftest import Pipeline
from tests.spark.test_state import fold

pytestmark = pytest.mark.xdist_group("spark")  # for --dist loadgroup: one JVM, each log made once

DATASET = "public.kinds"
WIDE = """create table public.wide (id integer primary key, seq text, date date);
    alter table public.wide alter seq set storage external"""
_TIME = "case when isfinite({c}) then extract(epoch from {c}) * 1000000 end"
_AT_SOURCE = {
    "date": "case when isfinite({c}) then {c} - date '1970-01-01' end",
    "timestamp": _TIME,
    "timestamp_ntz": _TIME,
    "binary": "encode({c}, 'hex')",
    "boolean": "{c}",
    "int": "{c}::bigint",
    "bigint": "{c}::bigint",
}
_IN_DUCKDB = {
    "date": "{c} - date '1970-01-01'",
    "timestamp": "epoch_us({c})",
    "timestamp_ntz": "epoch_us({c})",
    "binary": "lower(hex({c}))",
}
_TEXT = "case when {c} is distinct from null then format('%s', {c}) end"
"""What the type's output function prints; a cast to text strips the blanks of char(n)."""


class Kinds:
    """The table of every kind, as its source has it and as it was exported."""

    def __init__(self, pipeline: Pipeline, major: int) -> None:
        self.pipeline = pipeline
        self.columns = fidelity.columns(major)
        self.rows = max(len(case.values) for case in self.columns.values())
        for statement in fidelity.SETUP:
            pipeline.source.execute(statement.encode())
        listed = ", ".join(f"{name} {case.type}" for name, case in self.columns.items())
        pipeline.source.execute(f"create table public.kinds (id integer primary key, {listed})".encode())
        pipeline.source.execute(WIDE.encode())
        pipeline.source.execute("insert into public.wide values (1, repeat('x', 5000))")
        pipeline.replicate(
            "update public.wide set date = 'infinity'",
            *self._inserts(),
            f"delete from public.kinds where id = {self.rows}",
        )
        self.files = pipeline.export(rows_per_file=4)
        self.exported = pipeline.changes(DATASET)
        self.inserted = self.exported.slice(0, self.rows)

    def _inserts(self) -> Iterator[str]:
        """The last row is null everywhere but in the key; it is deleted again."""
        for number in range(self.rows + 1):
            texts = [case.values[number] if number < len(case.values) else None for case in self.columns.values()]
            values = sql.SQL(", ").join(sql.Literal(text) for text in texts)
            yield sql.SQL("insert into public.kinds values ({}, {})").format(number, values).as_string()


@pytest.fixture(scope="module", params=NEWEST)
def kinds(
    request: pytest.FixtureRequest,
    clusters: Callable[[int], Cluster],
    pipelines: Callable[..., AbstractContextManager[Pipeline]],
) -> Iterator[Kinds]:
    with pipelines(clusters(request.param)) as pipeline:
        yield Kinds(pipeline, request.param)


def test_each_column_has_the_type_that_the_table_names(kinds: Kinds) -> None:
    expected = {name: arrow_type(case.spark) for name, case in kinds.columns.items()}
    assert {name: kinds.exported.schema.field(name).type for name in expected} == expected


def test_each_value_is_the_source_s(kinds: Kinds) -> None:
    exact = [json.loads(text) if text else {} for text in kinds.inserted["exact"].to_pylist()]
    for name, case in kinds.columns.items():
        texts = at_source(kinds, _TEXT.format(c="c"), name)
        values = [plain(value, case.spark) for value in at_source(kinds, source_expression(case.spark), name)]
        found = zip(comparable(kinds.inserted[name], case.spark), (unfit.get(name) for unfit in exact), strict=True)
        given = [*case.values, *[None] * kinds.rows]
        wanted = [
            (None, text) if value in case.exact else (same, None)
            for value, same, text in zip(given, values, texts, strict=False)
        ]
        assert list(found) == wanted, case.type


def test_the_deleted_row_has_its_key_and_nulls(kinds: Kinds) -> None:
    deleted = kinds.exported.slice(kinds.rows + 1).to_pylist()
    assert [(row["action"], row["id"], row["record_pk"]) for row in deleted] == [
        ("delete", kinds.rows, str(kinds.rows))
    ]
    assert all(deleted[0][name] is None for name in kinds.columns)


def test_a_value_never_seen_is_named(kinds: Kinds) -> None:
    """Large values that an update leaves alone are not in the WAL; `exact` and it name columns as the files do."""
    [changed] = kinds.pipeline.changes("public.wide").to_pylist()
    assert (changed["seq_column"], changed["date_column"]) == (None, None)
    assert changed["unchanged_columns"] == ["seq_column"]
    assert json.loads(changed["exact"]) == {"date_column": "infinity"}


def test_duckdb_has_the_same_values(kinds: Kinds) -> None:
    import duckdb

    files = f"{kinds.pipeline.folder}/changes/{DATASET}/date=*/*.parquet"
    with duckdb.connect() as engine:
        for name, case in kinds.columns.items():
            if element(case.spark) is None:
                chosen = _IN_DUCKDB.get(case.spark, "{c}").format(c=name)
                found = engine.execute(f"select {chosen} from '{files}' order by seq limit {kinds.rows}").fetchall()
                assert [plain(value, case.spark) for (value,) in found] == comparable(
                    kinds.inserted[name], case.spark
                ), case.type


def test_spark_has_the_same_values_from_parquet_and_from_the_log(kinds: Kinds, spark: SparkSession) -> None:
    parquet = spark.read.parquet(f"{kinds.pipeline.folder}/changes/{DATASET}")
    log = spark.read.format("sequin_events").option("dsn", kinds.pipeline.dsn).option("table", DATASET).load()
    for found in (frame.orderBy("seq").limit(kinds.rows).toArrow() for frame in (parquet, log)):
        for name, case in kinds.columns.items():
            expected = comparable(kinds.inserted[name], case.spark)
            assert comparable(found[name], case.spark) == expected, case.type
        assert found["exact"].to_pylist() == kinds.inserted["exact"].to_pylist()


def test_the_page_says_what_is_proved() -> None:
    """`python -m tests.spark.fidelity` writes it."""
    assert fidelity.PART.is_current(fidelity.table())


def at_source(kinds: Kinds, expression: str, column: str) -> list[Any]:
    """An expression of `c` for each row, in the order of their keys."""
    query = f"select {expression} from (select id, {column} as c from public.kinds) as k order by id"
    return [value for (value,) in kinds.pipeline.source.execute(query.encode())]


def source_expression(spark: str) -> str:
    """The value in a form that says all of it, whatever a client can hold; null for an infinite time."""
    inner = element(spark)
    if inner is None:
        return _AT_SOURCE.get(spark, _TEXT).format(c="c")
    of_element = _AT_SOURCE.get(inner, _TEXT).format(c="c[i]")
    return f"case when c is not null then array(select {of_element} from generate_subscripts(c, 1) as i) end"


def comparable(values: pa.ChunkedArray, spark: str) -> list[Any]:
    """Values in the same form."""
    inner = element(spark) or spark
    whole = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}.get(inner)
    if whole is not None:
        values = values.cast(pa.list_(whole) if element(spark) else whole)
    return [plain(value, spark) for value in values.to_pylist()]


def plain(value: Any, spark: str) -> Any:
    """Floats by their bits, so that -0 is not 0 and NaN is NaN; bytes in hex; a decimal with all its digits."""
    if value is None:
        return None
    if inner := element(spark):
        return [plain(one, inner) for one in value]
    if spark in ("float", "double"):
        return struct.pack("<f" if spark == "float" else "<d", float(value)).hex()
    if spark.startswith("timestamp"):
        return int(value)
    if spark.startswith("decimal"):
        return Decimal(value).as_tuple()
    return value.hex() if isinstance(value, bytes) else value


@pytest.mark.long
@pytest.mark.parametrize("kinds", [18], indirect=True)
def test_both_engines_fold_every_type(kinds: Kinds, spark: SparkSession) -> None:
    """Of rows that are as they were, and of rows that change."""
    fold(kinds.pipeline, spark)
    kinds.pipeline.replicate("update public.kinds set id = id + 100 where id > 1", "update public.wide set date = null")
    fold(kinds.pipeline, spark, compared=2)
