"""Lakes of events tables that routes send changes to, beside that of the default one."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from lake import ledger
from lake.changes import exporter
from lake.errors import ExportError
from lake.folding import as_of, current
from lake.storage.folder import DiskFolder
from lake.storage.identity import open_for_reading
from pipeline.config.settings import load
from pipeline.exports import lakes, status
from pipeline.log.table import DEFAULT
from pyspark_sequin_events import catalog
from tests.fixtures.routed_log import AUDIT, route
from tests.fixtures.small_log import SOURCE, add_inserts, add_table, small_log

BACKFILL = """
    insert into pipeline.backfills (source_id, epoch, table_oid, table_schema, table_name, kind, state, since_seqs,
        events_table, first_seq, last_seq)
    values (%s, 0, 16384, 'public', 'orders', 'asked', 'complete', %s, %s, 61, 67)
"""
pytestmark = pytest.mark.xdist_group("spark")


def export(spark: SparkSession, dsn: str, folder: Path, table: str) -> list[str]:
    """As `export.py` does: everything, and the states; returns what was folded."""
    made: list[current.PublishedState] = []
    with ledger.open_ledger(dsn) as book, catalog.connect(dsn) as connection:
        lake = exporter.open_lake(book, DiskFolder(folder), table)
        bounds = book.exported_upto(lake.id), catalog.head(connection, table)
        exporter.export(spark, lake, connection, dsn, bounds, run=None, rows_per_file=500_000, report=lambda _: None)
        current.fold_all(spark, lake, current.find_outdated(lake), made.append)
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
        assert export(spark, database_dsn, inner, str(AUDIT)) == ["public.audits"]
        assert rows(inner / "current/public.audits/latest") == 35
        assert rows(inner / "changes/public.orders") == 3
        assert [
            tuple(row) for row in log.execute("select events_table, position from pipeline.readers order by 1")
        ] == [
            (str(AUDIT), 38),
            (str(DEFAULT), 50),
        ]


def test_a_divided_table_has_a_current_state_only_after_a_new_read(
    spark: SparkSession, database_dsn: str, tmp_path: Path
) -> None:
    config = load(database_dsn=database_dsn, data_dir=tmp_path)
    outer = config.exports
    assert isinstance(outer, Path)
    latest = outer / "current/public.orders/latest"
    with small_log(database_dsn, 50) as log:
        assert export(spark, database_dsn, outer, str(DEFAULT)) == ["public.orders"]
        route(log, "orders", 16384, first=1, last=3)
        add_table(log, "notes", 16400)
        add_inserts(log, 10, "notes", 16400)
        assert export(spark, database_dsn, outer, str(DEFAULT)) == ["public.notes"]
        assert not latest.exists(), "orders has changed elsewhere only"
        head = json.loads((outer / "manifest.json").read_bytes())
        assert list(head["current"]) == ["public.notes"]
        assert "`pipeline backfill start public.orders`" in head["without_current"]["public.orders"]
        [hidden] = status.read(config, log).hidden
        assert (hidden.table_name, hidden.events_table) == ("public.orders", str(DEFAULT))
        with (
            ledger.open_ledger(database_dsn) as book,
            pytest.raises(ExportError, match=f"{AUDIT} has changes of the table"),
        ):
            as_of.check_request(open_for_reading(book, DiskFolder(outer)), "public.orders", 60, None)

        add_inserts(log, 7)  # rows that a backfill has read
        log.execute(BACKFILL, [SOURCE, json.dumps({str(DEFAULT): 60, str(AUDIT): 3}), str(DEFAULT)])
        assert export(spark, database_dsn, outer, str(DEFAULT)) == ["public.orders"]
        assert rows(latest) == 7, "what is older than the backfill is not known to be there"
        add_inserts(log, 5)
        assert export(spark, database_dsn, outer, str(DEFAULT)) == ["public.orders"]
        assert rows(latest) == 12
        head = json.loads((outer / "manifest.json").read_bytes())
        assert (sorted(head["current"]), head["without_current"]) == (["public.notes", "public.orders"], {})
