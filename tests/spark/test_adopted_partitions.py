"""A log of which some was moved and some became partitions, read by Spark: every event, once."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from pipeline.log.table import DEFAULT
from pyspark_sequin_events import DefaultSource
from tests.fixtures.adopting import adopt, batch
from tests.fixtures.postgres import Cluster
from tests.fixtures.staged import Staged, Table, insert, staging_of
from tests.spark.test_events_tables import export

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]


def in_log(staged: Staged) -> list[tuple[int, str]]:
    return staged.connection.execute("select seq, record_pk from sequin_events order by seq").fetchall()


def test_an_export_and_the_data_source_have_every_event_once(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    spark.dataSource.register(DefaultSource)
    with staging_of(cluster, Table("orders")) as staged:
        staged.moved(insert("orders", id="first"))
        for first in (1_000, 1_000_000):
            adopt(
                staged, batch(staged, first, 300), batch(staged, first + 1_000, 250), batch(staged, first + 2_000, 20)
            )
            staged.shuffle()
            staged._lsn = first + 10_000
            staged.moved(insert("orders", id=f"behind {first}"))
            export(spark, staged.dsn, lake, str(DEFAULT))
            files = ds.dataset(lake / "changes/public.orders", partitioning="hive").to_table(["seq", "record_pk"])
            assert sorted(zip(*(files[name].to_pylist() for name in ("seq", "record_pk")), strict=True)) == in_log(
                staged
            )
            source = (
                spark.read.format("sequin_events").option("dsn", staged.dsn).option("rowsPerPartition", "100").load()
            )
            assert sorted((row.seq, row.record_pk) for row in source.select("seq", "record_pk").collect()) == in_log(
                staged
            )
        assert len(in_log(staged)) == 2 * 571 + 1
        adopted = staged.connection.execute(
            "select sum(changes)::int from pipeline.ways where way = 'adopt'"
        ).fetchone()
        assert adopted is not None
        assert adopted[0] >= 2 * 550
