"""spark_counts.py counts each change once, also after a crash between its sink and the checkpoint."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from tests.fixtures import small_log
from tests.fixtures.postgres import Cluster
from tests.fixtures.server import ROOT
from tests.fixtures.spark_counting import Counting

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def counting(cluster: Cluster, tmp_path: Path) -> Iterator[Counting]:
    with (
        cluster.database("events", cluster.template) as dsn,
        cluster.database("mine") as mine,
        Counting(dsn, mine, tmp_path / "checkpoint") as made,
    ):
        yield made


def test_a_batch_that_is_applied_again_counts_once(
    spark: SparkSession, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_DSN", counting.mine)
    load = DataStreamReader.load  # the JVM has been running, with its own environment
    monkeypatch.setattr(DataStreamReader, "load", lambda reader: load(reader.option("dsn", counting.dsn)))
    monkeypatch.setattr("sys.argv", ["spark_counts.py", str(counting.checkpoint), "once"])

    def run() -> None:
        runpy.run_path(str(ROOT / "tests/spark/spark_counts.py"))

    counting.write(100)
    run()
    assert counting.counts() == counting.written
    (counting.checkpoint / "commits" / "0").unlink()  # as if killed behind the sink's commit
    (counting.checkpoint / "commits" / ".0.crc").unlink()
    small_log.add_inserts(counting.log, 7)
    counting.written["orders"] += 7
    run()
    assert counting.counts() == counting.written
    with psycopg.connect(counting.mine) as mine:
        assert mine.execute("select seq from spark_position").fetchone() == (sum(counting.written.values()),)
