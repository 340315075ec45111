"""A table that changes its form: each of the five readers reads the whole dataset, as the page of readers says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from tests.spark.conftest import Pipeline
from tests.spark.readers import ALL_VERSIONS, CHANGES, ONE_VERSION, READERS, read

pytestmark = pytest.mark.xdist_group("spark")  # for --dist loadgroup: one JVM, each log made once

CREATE = """create table shop.orders (
    id integer primary key, customer text, amount numeric(10,2), weight real, quantity integer, seen timestamptz,
    local timestamp, day date, details jsonb, tags text[], raw bytea, note text)"""
COMMON: Mapping[str, Any] = {
    "seen": datetime(2024, 2, 29, 12, 34, 56, 1, UTC),
    "local": datetime(1900, 1, 1, 0, 0, 0, 999999),
    "day": date(1500, 2, 28),
    "details": '{"a": 1.10}',
    "tags": ["x", None, 'quote "'],
    "raw": b"\x00\xff",
}
MOST = 2**63 - 1


@dataclass(frozen=True)
class Step:
    """What is done before an export."""

    statements: tuple[str, ...]
    row: Mapping[str, Any]


STEPS = {
    "at first": Step(
        (), {"customer": "a", "amount": Decimal("99999999.99"), "weight": 1.5, "quantity": 2**31 - 1, "note": "n"}
    ),
    "added": Step(
        ("alter table shop.orders add paid boolean, add seq_no bigint",),
        {"customer": "b", "amount": Decimal("0.10"), "weight": -0.25, "quantity": 0, "paid": True, "seq_no": MOST},
    ),
    "dropped and renamed": Step(
        ("alter table shop.orders drop note", "alter table shop.orders rename customer to buyer"),
        {"buyer": "c", "amount": Decimal("1.00"), "weight": 2.0, "quantity": 1, "paid": False},
    ),
    "widened": Step(
        (
            "alter table shop.orders alter quantity type bigint, alter weight type double precision,"
            " alter amount type numeric(14,2)",
        ),
        {"buyer": "d", "amount": Decimal("999999999999.99"), "weight": 0.1, "quantity": -MOST},
    ),
}
INCOMPATIBLE = Step(
    ("alter table shop.orders alter quantity type text using quantity::text",),
    {"buyer": "e", "amount": Decimal("1.00"), "quantity": "many"},
)

IN_ONE_TRANSACTION = (
    "begin",
    "insert into shop.moods values (1, 1)",
    "alter table shop.moods add why text",
    "insert into shop.moods values (2, 2, 'sun')",
    "alter table shop.moods alter mood type text using 'mood ' || mood",
    "insert into shop.moods values (3, 'three', 'rain')",
    "commit",
)


@dataclass
class Drifted:
    """What each reader read after each step, `(step, reader)`, and of each version in the end, `(number, reader)`."""

    pipeline: Pipeline
    expected: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    found: dict[tuple[object, str], pa.Table] = field(default_factory=dict)

    def insert(self, step: Step, number: int) -> dict[str, Any]:
        row = {"id": number, **COMMON, **step.row}
        names = sql.SQL(", ").join(map(sql.Identifier, row))
        values = sql.SQL(", ").join(map(sql.Literal, row.values()))
        statement = sql.SQL("insert into shop.orders ({}) values ({})").format(names, values)
        self.pipeline.replicate(*step.statements, statement.as_string())
        self.pipeline.export()
        return row


@pytest.fixture(scope="module")
def drifted(pipelines: Callable[..., AbstractContextManager[Pipeline]], spark: SparkSession) -> Iterator[Drifted]:
    with pipelines() as pipeline:
        made = Drifted(pipeline)
        pipeline.source.execute("create schema shop")
        pipeline.source.execute(CREATE.encode())
        pipeline.source.execute("create table shop.moods (id integer primary key, mood integer)")
        rows: list[dict[str, Any]] = []
        for number, (name, step) in enumerate(STEPS.items(), 1):
            rows.append(made.insert(step, number))
            made.expected[name] = list(rows)
            for reader in READERS:
                made.found[name, reader] = read(CHANGES, reader, pipeline.folder, spark)
        pipeline.replicate(*IN_ONE_TRANSACTION)
        made.expected["incompatible"] = [made.insert(INCOMPATIBLE, len(rows) + 1)]
        for reader in READERS:
            made.found[1, reader] = read(ONE_VERSION, reader, pipeline.folder, spark)
            made.found[2, reader] = read(CHANGES, reader, pipeline.folder, spark, version=2)
        yield made


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("step", STEPS)
def test_each_reader_reads_the_whole_dataset(drifted: Drifted, step: str, reader: str) -> None:
    assert_equal(drifted.found[step, reader], drifted.expected[step])


@pytest.mark.parametrize("reader", READERS)
def test_partitions_are_dates(drifted: Drifted, reader: str) -> None:
    found = drifted.found["widened", reader]
    assert pa.types.is_date32(found.schema.field("date").type)
    assert found["date"].to_pylist() == [moment.astimezone(UTC).date() for moment in found["committed_at"].to_pylist()]


@pytest.mark.parametrize("reader", READERS)
def test_versions_are_read_alone(drifted: Drifted, reader: str) -> None:
    assert_equal(drifted.found[1, reader], drifted.expected["widened"])
    assert_equal(drifted.found[2, reader], drifted.expected["incompatible"])


def test_duckdb_reads_all_versions(drifted: Drifted, spark: SparkSession) -> None:
    found = read(ALL_VERSIONS, "DuckDB", drifted.pipeline.folder, spark)
    expected = [*drifted.expected["widened"], *drifted.expected["incompatible"]]
    assert_equal(found, [{**row, "quantity": str(row["quantity"])} for row in expected])


def test_ddl_in_the_middle_of_a_transaction_parts_its_rows(drifted: Drifted) -> None:
    first, second = (drifted.pipeline.changes("shop.moods", version) for version in (1, 2))
    assert len(set(first["commit_lsn"].to_pylist() + second["commit_lsn"].to_pylist())) == 1
    assert first.select(["id", "mood", "why"]).to_pylist() == [
        {"id": 1, "mood": 1, "why": None},
        {"id": 2, "mood": 2, "why": "sun"},
    ]
    assert second.select(["id", "mood", "why"]).to_pylist() == [{"id": 3, "mood": "three", "why": "rain"}]


def test_the_schema_is_there_before_a_file_that_needs_it(drifted: Drifted) -> None:
    folder = drifted.pipeline.folder / "changes" / "shop.orders"
    widest = pq.read_schema(folder / "_common_metadata")
    assert {name: str(widest.field(name).type) for name in ("quantity", "weight", "amount", "date")} == {
        "quantity": "int64",
        "weight": "double",
        "amount": "decimal128(14, 2)",
        "date": "date32[day]",
    }
    for file in folder.glob("date=*/*.parquet"):
        assert set(pq.read_schema(file).names) < set(widest.names)


def test_a_schema_that_was_lost_is_written_again(drifted: Drifted) -> None:
    file = drifted.pipeline.folder / "changes" / "shop.orders" / "_common_metadata"
    content = file.read_bytes()
    file.unlink()
    drifted.pipeline.export()
    assert file.read_bytes() == content


def assert_equal(found: pa.Table, rows: list[dict[str, Any]]) -> None:
    """Every column that a row does not name is null, or ours."""
    assert len(found) == len(rows)
    for values, row in zip(found.to_pylist(), rows, strict=True):
        assert values["record_pk"] == str(row["id"])
        assert values["action"] == "insert"
        assert {name: values[name] for name in row} == row
        assert all(
            values.get(name) is None for name in ("customer", "buyer", "paid", "seq_no", "note") if name not in row
        )
