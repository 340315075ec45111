"""A truncate of a partitioned table reaches the log as one of each partition, and empties the state of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from pyspark.sql import SparkSession

from pipeline.capture.source import sources
from pipeline.postgres import connections, session_settings
from pipeline.snapshots.register import TableRegister
from tests.spark.conftest import Pipeline
from tests.spark.test_state import fold, latest, rows_in

pytestmark = pytest.mark.xdist_group("spark")
TABLES = ("emptied", "halved", "refilled", "grown")


@pytest.fixture(scope="module")
def pipeline(pipelines: Callable[..., AbstractContextManager[Pipeline]]) -> Iterator[Pipeline]:
    with pipelines() as pipeline:
        for name in TABLES:
            pipeline.run(
                f"create table public.{name} (id bigint primary key, body text) partition by range (id)",
                f"create table public.{name}_1 partition of public.{name} for values from (0) to (100)",
                f"create table public.{name}_2 partition of public.{name} for values from (100) to (200)",
            )
        pipeline.start()
        look(pipeline)
        for name in TABLES:
            pipeline.run(f"insert into public.{name} values (1, 'a'), (101, 'b')")
        pipeline.run(
            "truncate public.emptied_1",
            "truncate public.emptied",
            "insert into public.emptied values (2, 'c')",
            "truncate public.halved_1",  # in two transactions
            "truncate public.halved_2",
            "create table public.grown_3 partition of public.grown for values from (200) to (300)",  # before any look
            "insert into public.grown values (201, 'c')",
            "truncate public.grown_1, public.grown_2",
        )
        pipeline.transaction(
            "truncate public.refilled",
            "insert into public.refilled values (2, 'c')",
            "truncate public.refilled",
            "insert into public.refilled values (3, 'd')",
        )
        pipeline.arrive()
        yield pipeline


def look(pipeline: Pipeline) -> None:
    with connections.connect(pipeline.source_dsn, "source", settings=session_settings.SERVER) as source:
        stored = sources.find(pipeline.log, pipeline.look("select id from pipeline.sources")[0]["id"])
        assert stored is not None
        TableRegister(pipeline.config, source, pipeline.log, stored, 0).update()


def ids(pipeline: Pipeline, table: str) -> set[int]:
    return {row["id"] for row in rows_in(latest(pipeline, table)).values()}


def test_only_a_truncate_of_all_partitions_empties_the_state(pipeline: Pipeline, spark: SparkSession) -> None:
    fold(pipeline, spark)
    assert [ids(pipeline, name) for name in TABLES] == [{2}, {1, 101}, {3}, {1, 101, 201}]
    changes = pipeline.changes("public.emptied")
    assert changes.column("action").to_pylist() == ["insert", "insert", "truncate", "truncate", "insert"]
    assert len(set(changes.column("source_table_oid").to_pylist())) == 1
    files = pipeline.look("select dataset, sum(rows)::int as rows from pipeline.export_files group by dataset")
    exported = {row["dataset"]: row["rows"] for row in files}
    assert exported["public.emptied_1"] == 1, "the truncate of it alone"
    assert "public.emptied_2" not in exported
    [events] = pipeline.look("select count(*) as number from sequin_events")
    assert sum(exported.values()) == events["number"]


def test_a_truncate_of_the_table_is_one_also_after_a_partition_joined(pipeline: Pipeline, spark: SparkSession) -> None:
    pipeline.replicate(
        "truncate public.emptied, public.grown", "create table public.emptied_3 partition of public.emptied default"
    )
    look(pipeline)
    fold(pipeline, spark)
    assert ids(pipeline, "emptied") == ids(pipeline, "grown") == set()
