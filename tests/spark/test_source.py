"""The data source `sequin_events`: events as they are, or typed, in parts that hold nothing open."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
    IsNull,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import DoubleType, StructField, StructType

from pyspark_sequin_events import DefaultSource
from pyspark_sequin_events.query import EVENTS
from tests.fixtures.waiting import eventually
from tests.spark.conftest import Pipeline
from tests.spark.readers import LOG, code

pytestmark = pytest.mark.xdist_group("spark")  # for --dist loadgroup: one JVM, each log made once

SCHEMA = 'Sh"op, {1}'
TABLE = "or=de.rs 100%/'\\ *[x]?"
LONG = "é" * 31
COLUMNS = (
    "id", "seq", "Action", "date", "SCHEMA", "name", "Name", "NAME", "name_column", LONG + "a", LONG + "b",
    'a"b', "a.b", "a b", "a=b", "{}", "it's", "back\\slash", "100%", "a,b;c", "tab\tnew\nline", "`tick`", "_", "1",
)  # fmt: skip
RENAMED = {
    "seq": "seq_column",
    "Action": "Action_column",
    "date": "date_column",
    "SCHEMA": "SCHEMA_column",
    "Name": "Name_column",
    "NAME": "NAME_column_column",
    "name_column": "name_column_column_column",
}
"""How the files and the source name them: no two are the same to those who ignore case."""
OLD_EVENT = """insert into public.sequin_events (source_database_id, source_table_oid, source_table_schema,
    source_table_name, record_pk, record, action, committed_at)
    values (gen_random_uuid(), 1, 'shop', 'old', '1', '{"id": 1.10}', 'insert', now())"""
AS_TEXT = ("source_database_id", "record", "changes", "exact", "transaction_annotations", "metadata")


@pytest.fixture(scope="module")
def pipeline(pipelines: Callable[..., AbstractContextManager[Pipeline]]) -> Iterator[Pipeline]:
    """One table of odd names, its key among ours, and a plain one."""
    with pipelines() as made:
        columns = sql.SQL(", ").join(sql.SQL("{} integer").format(sql.Identifier(name)) for name in COLUMNS)
        table = sql.Identifier(SCHEMA, TABLE)
        made.source.execute(sql.SQL("create schema {}").format(sql.Identifier(SCHEMA)))
        made.source.execute(sql.SQL("create table {} ({}, primary key (id, seq))").format(table, columns))
        made.source.execute("create schema shop")
        made.source.execute("create table shop.orders (id int primary key, amount numeric(10,2), at timestamptz)")
        made.source.execute("create table shop.keys (f float8, b bool, t text, v text, primary key (f, b, t))")
        made.source.execute("create table shop.flags (b bool primary key, v text)")
        made.source.execute("alter table shop.flags replica identity full")
        insert = sql.SQL("insert into {} select {} from generate_series(1, 300) as n").format(
            table, sql.SQL(", ").join(sql.SQL("n + {}").format(number) for number in range(len(COLUMNS)))
        )
        made.replicate(
            insert.as_string(),
            sql.SQL("update {} set seq = 0 where id = 7").format(table).as_string(),
            sql.SQL("delete from {} where id = 8").format(table).as_string(),
            "insert into shop.orders select n, n / 100.0, to_timestamp(n) from generate_series(1, 200) as n",
            "truncate shop.orders",
            "insert into shop.keys values (1e30, true, 'a,\"b', 'one'), (0.5, false, repeat('é', 1500), 'two')",
            "update shop.keys set f = -f; update shop.keys set v = 'three'; update shop.keys set t = 'c' where f > -1",
            "insert into shop.flags values (true, 'one'); update shop.flags set v = 'two'",
            "update shop.flags set b = false, v = 'three'",
            "select pg_logical_emit_message(true, 'note', 'hello')",
            "select pg_logical_emit_message(true, 'note', '\\xff00'::bytea)",
        )
        made.log.execute(
            "update sequin_events set action = 'read', commit_idx = commit_idx + 1 where action = 'insert'"
        )
        made.log.execute(OLD_EVENT)
        made.export(rows_per_file=100)
        yield made


def load(spark: SparkSession, pipeline: Pipeline, **options: object) -> DataFrame:
    reader = spark.read.format("sequin_events").option("dsn", pipeline.dsn)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def test_events_are_as_they_are_in_the_log(spark: SparkSession, pipeline: Pipeline) -> None:
    found = load(spark, pipeline, rows_per_partition=250)
    columns = ", ".join(f"{name}::text" if name in AS_TEXT else name for name in EVENTS)
    with pipeline.log.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        stored = cursor.execute(f"select {columns} from public.sequin_events order by seq").fetchall()
    assert found.orderBy("seq").toArrow().to_pylist() == stored
    assert found.rdd.getNumPartitions() == -(-stored[-1]["seq"] // 250)


def test_the_code_of_the_page(spark: SparkSession, pipeline: Pipeline) -> None:
    names: dict[str, Any] = {"spark": spark}
    program = str(code(LOG, "Spark")).replace("public.orders", "shop.orders").replace(", dsn)", f", {pipeline.dsn!r})")
    exec(program, names)  # noqa: S102
    found = names["orders"].orderBy("seq").toArrow()
    assert found["seq"].to_pylist() == [event["seq"] for event in pipeline.events("shop", "orders")]


def test_a_range_of_seqs(spark: SparkSession, pipeline: Pipeline) -> None:
    found = load(spark, pipeline, after=10, upto=20, rows_per_partition=3).orderBy("seq").toArrow()
    assert found["seq"].to_pylist() == list(range(11, 21))


def test_a_table_is_typed_and_equals_its_export(spark: SparkSession, pipeline: Pipeline) -> None:
    [folder] = (pipeline.folder / "changes").glob("Sh*")
    found = load(spark, pipeline, table=f"{SCHEMA}.{TABLE}", rows_per_partition=200)
    exported = pipeline.changes(folder.name)
    assert found.orderBy("seq").toArrow().to_pylist() == exported.to_pylist()
    assert set(exported["action"].to_pylist()) == {"read", "update", "delete"}
    assert exported["id"].to_pylist()[:300] == list(range(1, 301))
    assert spark.read.parquet(str(folder)).drop("date").orderBy("seq").toArrow().to_pylist() == exported.to_pylist()


def test_messages_and_events_of_unknown_form_are_exported(pipeline: Pipeline) -> None:
    messages = pq.read_table(pipeline.folder / "messages").to_pylist()
    contents = [(row["content"], row["content_bytes"]) for row in messages if row["prefix"] == "note"]
    assert contents == [("hello", None), (None, b"\xff\x00")]
    assert [row["record"] for row in pipeline.changes("shop.old", version=0).to_pylist()] == ['{"id": 1.10}']
    assert not list((pipeline.folder / "changes" / "shop.old").glob("date=*"))


def test_names_are_kept_and_ours_are_told_apart(spark: SparkSession, pipeline: Pipeline) -> None:
    [folder] = (pipeline.folder / "changes").glob("Sh*")
    assert folder.name == "Sh%22op%2C%20%7B1%7D.or%3Dde%2Ers%20100%25%2F%27%5C%20%2A%5Bx%5D%3F"
    exported = pipeline.changes(folder.name)
    expected = [RENAMED.get(name, name) for name in COLUMNS]
    assert exported.column_names[-len(expected) :] == expected
    first = exported.slice(0, 1).to_pylist()[0]
    assert [first[name] for name in expected] == [1 + number for number in range(len(COLUMNS))]
    changed = exported.filter(exported["action"].to_numpy(zero_copy_only=False) == "update").to_pylist()[0]
    assert (changed["record_pk"], changed["previous_record_pk"]) == ("[7,0]", "[7,8]")


def read(pipeline: Pipeline, push: Sequence[Filter] = (), **options: Any) -> tuple[list[dict[str, Any]], list[Filter]]:
    """Rows as Spark's tasks read them, and the filters that are left to Spark."""
    source = DefaultSource({"dsn": pipeline.dsn, **options})
    reader = source.reader(source.schema())
    left = list(reader.pushFilters(list(push)))
    return [
        row
        for part in reader.partitions()
        for batch in cast(Iterator[pa.RecordBatch], reader.read(part))
        for row in batch.to_pylist()
    ], left


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("table", ["keys", "flags"])
def test_a_change_of_key_is_a_delete_and_an_insert(pipeline: Pipeline, table: str, typed: bool) -> None:
    chosen: dict[str, Any] = {"table": f"shop.{table}"} if typed else {"tables": f"shop.{table}"}
    events = pipeline.events("shop", table, "seq, action, record_pk, record, changes")
    changed = {}  # seq → the key before: by the value that never changes, as the log had it
    known: dict[str, str] = {}
    for event in events:
        row = event["record"]["f"].__abs__() if table == "keys" else "the one"
        if known.get(row, event["record_pk"]) != event["record_pk"]:
            changed[event["seq"]] = known[row]
        known[row] = event["record_pk"]
    assert len(changed) == (3 if table == "keys" else 1)
    found, _ = read(pipeline, splitKeyChanges="true", **chosen)
    shown = [(row["seq"], row["action"], row["record_pk"]) for row in found]
    expected = []
    for event in events:
        if event["seq"] in changed:
            expected += [(event["seq"], "delete", changed[event["seq"]]), (event["seq"], "insert", event["record_pk"])]
        else:
            expected.append((event["seq"], event["action"], event["record_pk"]))
    assert shown == expected
    plain, _ = read(pipeline, **chosen)
    values = {row["seq"]: row for row in plain}
    for row in found:
        if row["seq"] not in changed:
            assert row == values[row["seq"]]
        elif typed:
            assert row["v"] == (values[row["seq"]]["v"] if row["action"] == "insert" else None)
            assert row["previous_record_pk"] is None
        else:
            assert ("v" in json.loads(row["record"])) == (row["action"] == "insert")
            assert row["changes"] is None


def test_filters_see_what_a_split_made(pipeline: Pipeline) -> None:
    found, _ = read(pipeline, splitKeyChanges="true", table="shop.flags", actions="delete")
    assert [(row["record_pk"], row["b"]) for row in found] == [("t", True)]
    found, left = read(pipeline, [EqualTo(("record_pk",), "t")], splitKeyChanges="true", tables="shop.flags")
    assert ([row["action"] for row in found], left) == (["read", "update", "delete"], [])


PUSHED = (
    (EqualTo(("source_table_name",), "orders"), Not(In(("action",), ("delete", "truncate"))), IsNotNull(("action",))),
    (GreaterThan(("seq",), 40), LessThanOrEqual(("seq",), 330), StringStartsWith(("record_pk",), "[1")),
    (In(("action",), ("delete", "truncate")), Not(EqualTo(("record_pk",), "[8,9]")), Not(EqualTo(("seq",), 3))),
    (EqualTo(("seq",), 17), EqualTo(("source_table_schema",), SCHEMA)),
    (IsNull(("commit_lsn",)), EqualTo(("source_table_oid",), 1)),
    (In(("record_pk",), ("[8,9]", "it's \\ %")),),
    (GreaterThan(("seq",), 40), EqualTo(("seq",), 30)),
)
KEPT = (
    EqualTo(("seq",), None),
    GreaterThan(("action",), "delete"),
    EqualTo(("record_pk",), "a\0b"),
    EqualTo(("xid",), 1),
    EqualTo(("action", "deeper"), "delete"),
    Not(EqualNullSafe(("commit_lsn",), 1)),
    EqualTo(("seq",), 2**63),
    EqualTo(("seq",), True),
)


def keeps(each: Filter, row: dict[str, Any]) -> bool:
    """What Spark says of it."""
    if isinstance(each, Not):
        return not keeps(each.child, row)
    value = row[cast(Any, each).attribute[0]]
    other = getattr(each, "value", None)
    decided: dict[type[Filter], Callable[[], bool]] = {
        EqualTo: lambda: value == other,
        GreaterThan: lambda: value > other,
        LessThanOrEqual: lambda: value <= other,
        In: lambda: value in cast(Any, other),
        StringStartsWith: lambda: value.startswith(other),
        IsNotNull: lambda: value is not None,
        IsNull: lambda: value is None,
    }
    return decided[type(each)]()


def test_what_is_pushed_down_is_decided_as_spark_does(pipeline: Pipeline) -> None:
    everything, _ = read(pipeline)
    for each in PUSHED:
        found, left = read(pipeline, each)
        assert found == [row for row in everything if all(keeps(one, row) for one in each)], each
        assert left == []
        assert bool(found) == (each is not PUSHED[-1]), each
    found, left = read(pipeline, KEPT)
    assert (len(found), left) == (len(everything), list(KEPT))


def test_spark_pushes_down_where_it_is_told_to(spark: SparkSession, pipeline: Pipeline) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        narrow = load(spark, pipeline, rows_per_partition=100).where("seq <= 400 and action = 'update' and xid > 0")
        plan = narrow._jdf.queryExecution().executedPlan().toString()
        assert narrow.rdd.getNumPartitions() == 4
        assert [row.record_pk for row in narrow.collect()] == ["[7,0]"]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    [left] = [line for line in plan.splitlines() if "Filter (" in line]
    assert "xid" in left and "action" not in left and "seq" not in left


def test_columns_by_option_or_by_schema(pipeline: Pipeline) -> None:
    source = DefaultSource({"dsn": pipeline.dsn, "table": "shop.orders", "columns": "amount, seq"})
    assert source.schema().simpleString() == "struct<amount:decimal(10,2),seq:bigint>"
    reader = source.reader(StructType(source.schema().fields[1:]))
    batches = cast(Iterator[pa.RecordBatch], itertools.chain(*map(reader.read, reader.partitions())))
    assert [row for batch in batches for row in batch.to_pylist()] == [
        {"seq": event["seq"]} for event in pipeline.events("shop", "orders")
    ]
    with pytest.raises(ValueError, match=r"column amount is decimal\(10,2\), and not double as the given schema says"):
        source.reader(StructType([StructField("amount", DoubleType())]))


def test_nothing_is_held_between_partitions(pipeline: Pipeline) -> None:
    reading = f"reading_{pipeline.folder.parent.name}"
    options = {"dsn": make_conninfo(pipeline.dsn, application_name=reading), "rows_per_partition": "100"}
    source = DefaultSource(options)
    reader = source.reader(source.schema())
    partitions = reader.partitions()
    eventually(lambda: sessions(pipeline, reading) == 0)  # the backend that planned ends a moment after its client
    for partition in partitions:
        batches: Iterator[Any] = iter(reader.read(partition))
        assert next(batches).num_rows > 0
        eventually(lambda: sessions(pipeline, reading) == 1)  # so does the one in which the driver looked for types
        assert sum(batch.num_rows for batch in batches) == 0
        eventually(lambda: sessions(pipeline, reading) == 0)


def sessions(pipeline: Pipeline, name: str) -> int:
    row = pipeline.log.execute(
        "select count(*) from pg_stat_activity where application_name = %s and backend_type = 'client backend'",
        [name[:63]],
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dsn": ""}, "option dsn is missing, and PIPELINE_DATABASE_DSN is not set"),
        ({"events_table": "sequin_events"}, "option events_table is 'sequin_events', expected schema.table"),
        ({"events_table": "public.gone"}, 'relation "public.gone" does not exist'),
        ({"table": "orders"}, "option table is 'orders', which is in no event; expected schema.table"),
        ({"table": "shop.orders", "version": "2"}, "option version is 2, but table shop.orders has versions 1 to 1"),
        ({"after": "first"}, "option after is 'first', expected a whole number"),
        ({"upto": "1e3"}, "option upto is '1e3', expected a whole number"),
        ({"rows_per_partition": "0"}, "option rows_per_partition must be at least 1"),
        ({"dsn": "host=/nowhere dbname=x"}, "the pipeline database refused"),
    ],
)
def test_a_wrong_option_is_named(pipeline: Pipeline, options: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=r"^sequin_events: ") as caught:
        source = DefaultSource({"dsn": pipeline.dsn, **options})
        source.reader(source.schema())
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_reason_is_in_what_spark_raises(spark: SparkSession, pipeline: Pipeline) -> None:
    with pytest.raises(PySparkException, match=r"option table is .public\.gone., which is in no event"):
        load(spark, pipeline, table="public.gone")


@pytest.fixture
def dropped(pipeline: Pipeline) -> Iterator[Callable[[int], None]]:
    """`dropped(seq)`: retention has dropped all below it, on record."""

    def drop(below: int) -> None:
        pipeline.log.execute(
            "insert into pipeline.retention (events_table, dropped_below) values ('public.sequin_events', %s)"
            " on conflict (events_table) do update set dropped_below = excluded.dropped_below",
            [below],
        )

    yield drop
    pipeline.log.execute("delete from pipeline.retention")


def test_a_range_of_which_retention_has_dropped_a_part_is_refused(
    pipeline: Pipeline, dropped: Callable[[int], None]
) -> None:
    dropped(10)
    source = DefaultSource({"dsn": pipeline.dsn, "after": "8", "upto": "20"})
    with pytest.raises(ValueError, match=r"seq 9 to 9 of public.sequin_events were dropped .* set option after to 9"):
        source.reader(source.schema())
    for kept in ({"after": "9", "upto": "20"}, {"upto": "20"}):
        source = DefaultSource({"dsn": pipeline.dsn, **kept})
        reader = source.reader(source.schema())
        (partition,) = reader.partitions()
        batches: Iterator[Any] = iter(reader.read(partition))
        assert sum(batch.num_rows for batch in batches) == 11


def test_what_retention_drops_while_it_is_read_is_noticed(pipeline: Pipeline, dropped: Callable[[int], None]) -> None:
    source = DefaultSource({"dsn": pipeline.dsn, "upto": "20"})
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    dropped(12)
    with pytest.raises(ValueError, match=r"seq 1 to 11 of public.sequin_events were dropped by retention"):
        list(reader.read(partition))
