"""What is too much to be merged in the driver is merged in Spark's tasks, where our modules come with the job."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lake import ledger
from lake.changes.manifest import LakeManifest
from lake.compaction import run
from lake.storage.identity import open_for_reading
from tests.fixtures.iceberg_lake import iceberg_lake
from tests.fixtures.lake_readers import by_glob, by_manifest

pytestmark = pytest.mark.xdist_group("spark")  # for --dist loadgroup: one JVM
FORM = {"id": "bigint", "price": "decimal(12,2)"}


def test_tables_are_merged_in_tasks(
    database_dsn: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SOON", 0)
    with iceberg_lake(database_dsn, tmp_path / "lake") as lake:
        for number in range(6):
            for table, dataset in enumerate(("shop.orders", "shop.lines"), 1):
                lake.change(dataset, FORM, {"id": number, "price": f"{number}.25"}, table=table)
        LakeManifest(lake.ledger.lake).update()
        with ledger.open_ledger(lake.dsn) as book:
            made = list(run.compact(open_for_reading(book, lake.ledger.lake.folder), lambda: spark, lambda _: None))
        assert [(each.files_before, each.files_after) for each in made] == [(12, 2)]
        assert by_glob(lake.root) == by_manifest(lake.root) == list(range(1, lake.upto + 1))
