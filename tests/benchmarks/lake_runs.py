"""Whole runs of `pipeline export`, changes and current states: of many small tables, of few large ones, of a few rows.

Each begins and ends a session of Spark, as a scheduled run does with PIPELINE_EXPORT_KEEP_SESSION at its default.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from psycopg import Connection

from tests.benchmarks.backlog import SOURCE_DATABASE
from tests.benchmarks.contenders import OF_A_BACKLOG, wait_for_events
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.processes import machine_seconds
from tests.benchmarks.server import DATABASE, PipelineServer, serve
from tests.benchmarks.table import Table
from tests.fixtures.postgres import Cluster

NAME, SLOT = "lake-runs", "lake_runs"
SIZES = ((2_000, 10), (210, 50), (4, 147_750))
"""Tables, and the rows of each: what is exported by the first run of a lake."""
MOST_SECONDS = 600
"""Of the first run of SIZES[0]."""
FEW = (1, 5)
"""Then this many tables of those of SIZES[1] get one changed row each."""
CPU_OF_FEW = {1: 15, 5: 18}


@dataclass(frozen=True)
class Run:
    """Seconds, and CPU seconds of all programs meanwhile: the run's own end where their parents have no word of it."""

    seconds: float
    cpu: float


class Log:
    """A source of small tables, a server that follows it, and the lake of its log."""

    def __init__(self, server: PipelineServer, source: Connection, database: Connection) -> None:
        self._server = server
        self._source = source
        self._database = database
        self._changes = 0

    def change(self, statement: str, changes: int) -> None:
        """Execute it at the source, and wait until what it changes is in the log."""
        self._source.execute(statement.encode())
        self._changes += changes
        wait_for_events(self._server, self._database, self._changes)

    def export(self) -> Run:
        """Raises BenchmarkFailed when it fails, or the lake then lacks an event."""
        started, cpu = time.monotonic(), machine_seconds()
        self._server.run("export", "run")
        run = Run(time.monotonic() - started, machine_seconds() - cpu)
        row = self._database.execute("select sum(rows) from pipeline.exports where state = 'committed'").fetchone()
        if row is None or row[0] != self._changes:
            raise BenchmarkFailed(f"{row} rows are in the lake, {self._changes} changes in the log")
        return run


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """The first run of each of SIZES, then `runs` runs for each of FEW."""
    for tables, rows in SIZES:
        count, each = (max(1, round(tables * scale)), rows) if tables > rows else (tables, max(1, round(rows * scale)))
        what = f"{count:,} tables of {each:,} rows"
        with _log(cluster, count) as log:
            log.change(
                _each(count, f"insert into rows_%s select g, 0, 'row ' || g from generate_series(1, {each}) g"),
                count * each,
            )
            run = log.export()
            _add(figures, f"{what}, their first run", [run], most=MOST_SECONDS if (tables, rows) == SIZES[0] else None)
            if (tables, rows) == SIZES[1]:
                for few in (few for few in FEW if few <= count):
                    found = []
                    for _ in range(runs):
                        log.change(_each(few, "update rows_%s set n = n + 1 where id = 1"), few)
                        found.append(log.export())
                    _add(figures, f"{few} changed row{'s in as many tables' * (few > 1)}", found, cpu=CPU_OF_FEW[few])


def _add(figures: Table, what: str, found: list[Run], most: float | None = None, cpu: float | None = None) -> None:
    print(f"{NAME}, {what}: " + ", ".join(f"{run.seconds:.1f} s ({run.cpu:.1f} CPU s)" for run in found), flush=True)
    figures.add(NAME, f"{what}: s", [run.seconds for run in found], "{:.1f}", most=most)
    figures.add(NAME, f"{what}: CPU s of all programs", [run.cpu for run in found], "{:.1f}", most=cpu)


@contextmanager
def _log(cluster: Cluster, tables: int) -> Iterator[Log]:
    cluster.drop(SOURCE_DATABASE)
    cluster.create(SOURCE_DATABASE)
    try:
        with (
            cluster.connect(SOURCE_DATABASE) as source,
            tempfile.TemporaryDirectory(prefix="wal-bench-lake-") as folder,
        ):
            source.execute(_each(tables, "create table rows_%s (id int primary key, n int not null, v text)").encode())
            settings = {**OF_A_BACKLOG, "PIPELINE_EXPORT_DIR": str(Path(folder) / "lake")}
            with serve(cluster, SLOT, settings=settings) as server, cluster.connect(DATABASE) as database:
                server.wait_active(source)
                yield Log(server, source, database)
                server.require_steady()
    finally:
        cluster.drop(SOURCE_DATABASE)


def _each(tables: int, statement: str) -> str:
    """For each table a transaction, with the table's number where the statement has %s."""
    quoted = statement.replace("'", "''")
    body = f"for t in 1..{tables} loop execute replace('{quoted}', '%s', t::text); commit; end loop"
    return f"do $do$ begin {body}; end $do$"
