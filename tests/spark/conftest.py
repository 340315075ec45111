"""A source replicated by the real worker and shuffler, and a lake that it is exported to on one Spark session."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from export import MOST_RANGES
from pyspark.sql import SparkSession

from lake import ledger
from lake.changes import exporter, plan
from lake.changes.writer import WrittenFile
from lake.cluster import session
from lake.folder import Folder
from pipeline import config as settings
from pipeline.catalog import sources
from pipeline.events.log import DEFAULT
from pipeline.shuffle.worker import Shuffler
from pipeline.wal.encoding import SESSION_SETTINGS
from pyspark_sequin_events import catalog
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.replicating import Replicating
from tests.fixtures.server import ROOT
from tests.fixtures.spark import environment
from tests.fixtures.waiting import eventually

EVENTS = "public.sequin_events"
TIMEOUT = 60
"""Seconds; a Java that starts beside takes its share."""


class Pipeline:
    """One source, its log, and a lake in `folder` (made at the first export).

    `source` prints values as the worker sees them, and has no search_path; `log` is the pipeline database.
    """

    def __init__(self, source_dsn: str, database_dsn: str, folder: Path, spark: Callable[[], SparkSession]) -> None:
        self.dsn = database_dsn
        self.source_dsn = source_dsn
        self.folder = folder
        self.source = psycopg.connect(source_dsn, autocommit=True)
        for setting in SESSION_SETTINGS.items():
            self.source.execute("select set_config(%s, %s, false)", setting)
        self.log = psycopg.connect(database_dsn, autocommit=True)
        self._config = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=unique("slot"))
        self._spark = spark
        self._replicating: Replicating | None = None
        self._marks = itertools.count(1)

    def close(self) -> None:
        """End what runs; the databases are the caller's."""
        try:
            if self._replicating is not None:
                self._replicating.__exit__()
        finally:
            self.source.close()
            self.log.close()

    def replicate(self, *statements: str) -> int:
        """Run them at the source; returns the head of the log, which holds all that they changed.

        Tables must be there at the first call, which makes slot and publications.
        """
        if self._replicating is None:
            self._replicating = Replicating(self._config).__enter__()
            eventually(self._replicating._streams, TIMEOUT)
        for statement in statements:
            self.source.execute(statement.encode())
        mark = str(next(self._marks))
        self.source.execute("select pg_logical_emit_message(true, 'mark', %s)", [mark])
        return eventually(lambda: self._shuffled_upto(mark), TIMEOUT)

    def _shuffled_upto(self, mark: str) -> int:
        assert self._replicating is not None
        if self._replicating._error is not None:
            raise self._replicating._error
        stored = sources.find(self.log, None)
        assert stored is not None
        Shuffler(self.log, stored.id, DEFAULT, stopping=lambda: False).step()
        row = self.log.execute(
            f"select max(seq) from {EVENTS} where source_table_oid = 0 and record ->> 'content' = %s", [mark]
        ).fetchone()
        return int(row[0] or 0) if row else 0

    def export(
        self, *, range_rows: int = exporter.RANGE_ROWS, rows_per_file: int = plan.ROWS_PER_FILE
    ) -> list[WrittenFile]:
        """What `export.py` does, on the tests' Spark session: everything up to the head; returns the new files."""
        files: list[WrittenFile] = []
        with ledger.opened(self.dsn) as book, catalog.connect(self.dsn) as connection:
            lake = exporter.open_lake(book, Folder(self.folder), EVENTS)
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
                    told=lambda _: None,
                )
        return files

    def events(self, schema: str, table: str, columns: str = "*") -> list[dict[str, Any]]:
        """Events of a source table as they are in the log, in order."""
        with self.log.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            return cursor.execute(
                f"select {columns} from {EVENTS} where source_table_schema = %s and source_table_name = %s"
                " order by seq",
                [schema, table],
            ).fetchall()

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
        if home := environment().get("JAVA_HOME"):  # for the session, and for the scripts that tests start
            patch.setenv("JAVA_HOME", home)
        with session("local[2]", "tests") as made:
            yield made


@pytest.fixture(scope="session")
def pipelines(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., AbstractContextManager[Pipeline]]:
    """`with pipelines() as pipeline`: databases of its own; `pipelines(clusters(15))` has its source there."""

    @contextmanager
    def make(source: Cluster = cluster) -> Iterator[Pipeline]:
        folder = tmp_path_factory.mktemp("lake") / "lake"
        with source.database("source") as source_dsn, cluster.database("events", cluster.template) as dsn:
            pipeline = Pipeline(source_dsn, dsn, folder, lambda: request.getfixturevalue("spark"))
            try:
                yield pipeline
            finally:
                pipeline.close()

    return make
