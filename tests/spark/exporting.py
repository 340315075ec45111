"""What `export.py` does, on the tests' Spark session, to a lake in a folder or in a bucket."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lake import ledger
from lake.changes import exporter
from lake.folding import current
from lake.iceberg import publish
from lake.iceberg.ledger import CatalogSettings
from lake.storage.identity import folder_at
from pyspark_sequin_events import catalog
from tests.spark.conftest import EVENTS


def run(spark: SparkSession, dsn: str, at: str, keep: float = 3600) -> None:
    """Bring changes, current states and Iceberg tables up to the head of the log."""
    with ledger.open_ledger(dsn) as book, catalog.connect(dsn) as connection:
        lake = exporter.open_lake(book, folder_at(at), EVENTS)
        current.recover(lake, keep, keep)
        bounds = book.exported_upto(lake.id), catalog.head(connection, EVENTS)
        if bounds[0] < bounds[1]:
            exporter.export(spark, lake, connection, dsn, bounds, run=None, rows_per_file=500_000, report=_nothing)
        current.fold_all(spark, lake, current.find_outdated(lake), _nothing)
        publish.publish(lake, CatalogSettings("lake"), keep)


def _nothing(_: object) -> None:
    return
