"""Lakes of events tables that routes send changes to, beside that of the default one."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from lake import ledger
from lake.changes import exporter
from lake.folder import Folder
from lake.states import current
from pipeline.config.settings import load
from pipeline.exports import lakes
from pipeline.log.table import DEFAULT
from pyspark_sequin_events import catalog
from tests.fixtures.routed_log import AUDIT, route
from tests.fixtures.small_log import add_inserts, small_log

pytestmark = pytest.mark.xdist_group("spark")


def export(spark: SparkSession, dsn: str, folder: Path, table: str) -> list[str]:
    """As `export.py` does: everything, and the states; returns what was folded."""
    made: list[current.Published] = []
    with ledger.opened(dsn) as book, catalog.connect(dsn) as connection:
        lake = exporter.open_lake(book, Folder(folder), table)
        bounds = book.exported_upto(lake.id), catalog.head(connection, table)
        exporter.export(spark, lake, connection, dsn, bounds, run=None, rows_per_file=500_000, report=lambda _: None)
        current.fold_all(spark, lake, current.outdated(lake), made.append)
    return [each.dataset for each in made]


def rows(folder: Path) -> int:
    return int(ds.dataset(folder, partitioning="hive").count_rows())


def test_each_has_a_lake_of_its_own_in_that_of_the_default_one(
    spark: SparkSession, database_dsn: str, tmp_path: Path
) -> None:
    config = load(database_dsn=database_dsn, data_dir=tmp_path)
    inner, outer = lakes.folder(config, str(AUDIT)), config.exports
    assert isinstance(inner, Path) and isinstance(outer, Path)
    assert inner == tmp_path / "exports/public.audit%2Fevents"
    with small_log(database_dsn, 0) as log:
        route(log)
        assert export(spark, database_dsn, inner, str(AUDIT)) == ["public.audits"]
        assert rows(inner / "changes/public.audits") == 30
        assert rows(inner / "current/public.audits/latest") == 30

        add_inserts(log, 50)  # the default one's lake comes later, around the other
        assert export(spark, database_dsn, outer, str(DEFAULT)) == ["public.orders"]
        assert rows(outer / "changes/public.orders") == 50
        assert not (outer / "changes/public.audits").exists()

        route(log, first=31, last=35)  # the same oid, and seqs that the other table has, too
        route(log, "orders", 16384, first=1, last=3)
        assert sorted(export(spark, database_dsn, inner, str(AUDIT))) == ["public.audits", "public.orders"]
        assert rows(inner / "current/public.audits/latest") == 35
        assert rows(inner / "current/public.orders/latest") == 3
        assert rows(outer / "current/public.orders/latest") == 50
        assert [
            tuple(row) for row in log.execute("select events_table, position from pipeline.readers order by 1")
        ] == [
            (str(AUDIT), 38),
            (str(DEFAULT), 50),
        ]
