"""A source replicated by the real worker and shuffler, and a lake that it is exported to on one Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from export import MOST_RANGES
from pyspark.sql import SparkSession

from lake import ledger
from lake.changes import exporter, plan
from lake.changes.writer import WrittenFile
from lake.running.cluster import session
from lake.storage.folder import DiskFolder
from pipeline.config.settings import Config
from pyspark_sequin_events import catalog
from tests.fixtures.object_store import CREDENTIALS
from tests.fixtures.postgres import Cluster
from tests.fixtures.server import ROOT
from tests.fixtures.spark import environment
from tests.fixtures.stage import Stage, databases

EVENTS = "public.sequin_events"


class Pipeline(Stage):
    """One source, its log, and a lake in `folder` (made at the first export).

    `source` prints values as the worker sees them, and has no search_path.
    """

    def __init__(self, config: Config, folder: Path, spark: Callable[[], SparkSession]) -> None:
        super().__init__(config)
        self.print_as_worker()
        self.dsn, self.source_dsn = config.database, config.source
        self.folder = folder
        self._spark = spark

    def replicate(self, *statements: str) -> int:
        """Run them at the source; returns the head of the log, which holds all that they changed.

        Tables must be there at the first call, which makes slot and publications.
        """
        self.start()
        self.run(*statements)
        return self.arrive()

    def export(
        self, *, range_rows: int = exporter.RANGE_ROWS, rows_per_file: int = plan.ROWS_PER_FILE
    ) -> list[WrittenFile]:
        """What `export.py` does, on the tests' Spark session: everything up to the head; returns the new files."""
        files: list[WrittenFile] = []
        with ledger.open_ledger(self.dsn) as book, catalog.connect(self.dsn) as connection:
            lake = exporter.open_lake(book, DiskFolder(self.folder), EVENTS)
            head = catalog.head(connection, EVENTS)
            bounds_of_all = book.exported_upto(lake.id), head
            for bounds in catalog.ranges(connection, EVENTS, bounds_of_all, range_rows, MOST_RANGES):
                files += exporter.export(
                    self._spark(),
                    lake,
                    connection,
                    self.dsn,
                    bounds,
                    run=None,
                    rows_per_file=rows_per_file,
                    report=lambda _: None,
                )
        return files

    def events(self, schema: str, table: str, columns: str = "*") -> list[dict[str, Any]]:
        """Events of a source table as they are in the log, in order."""
        query = f"select {columns} from {EVENTS} where source_table_schema = %s and source_table_name = %s order by seq"
        return self.look(query, schema, table)

    def changes(self, dataset: str, version: int = 1) -> pa.Table:
        """A dataset as pyarrow reads it with the schema of its newest file, in order of seq."""
        folder = self.folder / "changes" / dataset / (f"schema={version}" if version != 1 else "")
        files = sorted(folder.glob("date=*/*.parquet"))
        return ds.dataset(files, schema=ds.dataset(files[-1]).schema).to_table().sort_by("seq")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session, as `export.py` makes it, with our modules on the path as an installed wheel has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "spark"))
        for name, value in CREDENTIALS.items():  # for tasks too
            patch.setenv(name, value)
        if home := environment().get("JAVA_HOME"):  # for the session, and for the scripts that tests start
            patch.setenv("JAVA_HOME", home)
        with session("local[2]", "tests") as made:
            yield made


@pytest.fixture(scope="session")
def pipelines(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., AbstractContextManager[Pipeline]]:
    """`with pipelines() as pipeline`: its own databases; `pipelines(clusters(15))` has its source there."""

    @contextmanager
    def make(source: Cluster = cluster) -> Iterator[Pipeline]:
        folder = tmp_path_factory.mktemp("lake") / "lake"
        with (
            databases(source, cluster) as config,
            Pipeline(config, folder, lambda: request.getfixturevalue("spark")) as pipeline,
        ):
            yield pipeline

    return make
