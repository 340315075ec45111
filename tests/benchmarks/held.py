"""A transaction held open on the pipeline database while changes come: what becomes of staging, and of the rate."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.benchmarks import load, visible
from tests.benchmarks.backlog import PUBLICATION, ROW, table
from tests.benchmarks.contenders import visible_events
from tests.benchmarks.latency import SHARES
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import DATABASE, PipelineServer, serve
from tests.benchmarks.steady import PROBES
from tests.benchmarks.table import Table
from tests.benchmarks.usage import Usage, postmaster
from tests.benchmarks.visible import percentile
from tests.fixtures.background import BackgroundThread
from tests.fixtures.postgres import Cluster

NAME = SLOT = "held"
SECONDS = 180.0
TRANSACTIONS, ROWS = 1000, 5
"""A second, and in each of them."""
DEAD, UNCHANGED = 1000, 0.97
"""Goals: dead rows in staging, less; the rate with the transaction held ÷ without, at least."""
_TABLES = """
    create table held_rows (like bench_rows including all);
    create sequence held_keys;
"""
_SCRIPT = (
    f"insert into held_rows select {ROW.format('n')} from nextval('held_keys') k, "
    f"lateral (select k * {ROWS} + i as n from generate_series(1, {ROWS}) i) keys;\n"
)
_DEAD = """
    select coalesce(sum(n_dead_tup) filter (where relname like 'wal\\_events%'), 0),
        coalesce(sum(n_dead_tup) filter (where relname like '%\\_progress' or relname = 'segments'), 0)
    from pg_stat_user_tables
"""


class DeadRows(BackgroundThread):
    """The most dead rows of staging, and of the tables that keep its books, seen each second of the `with` block."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._database = cluster.connect(DATABASE)
        self.staging = self.books = 0

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._database.close()

    def work(self) -> None:
        while not self.stopped.wait(1.0):
            staging, books = self._database.execute(_DEAD).fetchall()[0]
            self.staging, self.books = max(self.staging, int(staging)), max(self.books, int(books))


@dataclass(frozen=True)
class Followed:
    """What was seen while changes came."""

    changes_per_second: float
    milliseconds: list[float]
    staging: int
    books: int
    cpu: float
    megabytes: dict[str, float]


def report(cluster: Cluster, figures: Table, scale: float) -> None:
    """Once without the transaction and once with it; adds the figures."""
    seconds = max(5.0, SECONDS * min(1.0, scale))
    meter = OtherPrograms(postmaster(cluster))
    found = {"without": _follow(cluster, seconds, held=False), "held": _follow(cluster, seconds, held=True)}
    for name, followed in found.items():
        _add(name, followed, figures)
    ratio = found["held"].changes_per_second / found["without"].changes_per_second
    figures.add(NAME, "held ÷ without, changes/s", [ratio], "{:.2f}", least=UNCHANGED)
    figures.add(NAME, "cores that other programs took meanwhile", [meter.cores()], "{:.2f}", below=QUIET_CORES)


def _follow(cluster: Cluster, seconds: float, *, held: bool) -> Followed:
    with table(cluster) as source:
        source.execute(_TABLES)
        source.execute(f"alter publication {PUBLICATION} add table held_rows")
        with serve(cluster, SLOT) as server:
            server.wait_active(source)
            with visible.reader(server, source) as reader, _snapshot(cluster, held=held):
                followed = _measure(cluster, server, reader, seconds)
            server.require_steady()
    return followed


@contextmanager
def _snapshot(cluster: Cluster, *, held: bool) -> Iterator[None]:
    """With `held`, a transaction that has read the log and goes on seeing it as it was."""
    with cluster.connect(DATABASE) as database:
        if held:
            database.execute("begin isolation level repeatable read")
            database.execute("select count(*) from sequin_events")
        yield


def _measure(cluster: Cluster, server: PipelineServer, reader: visible.Reader, seconds: float) -> Followed:
    with (
        tempfile.NamedTemporaryFile("w", prefix="wal-bench-held-", suffix=".sql") as script,
        cluster.connect(DATABASE) as database,
        Usage(server) as usage,
        DeadRows(cluster) as dead,
    ):
        script.write(_SCRIPT)
        script.flush()
        before = visible_events(database)
        with load.running(cluster, ("--file", script.name, "--client", 8), TRANSACTIONS, seconds) as writer:
            committed = visible.write(cluster, visible.WARM_UP, round(PROBES * seconds), PROBES)
            rate = (visible_events(database) - before) / seconds
            load.transactions(writer, seconds)
        reader.wait_for(committed, seconds)
        changes, cpu = visible_events(database) - before, usage.cpu()
    delays = sorted((reader.seen[key] - at) * 1000 for key, at in committed.items())
    return Followed(rate, delays, dead.staging, dead.books, sum(cpu.values()) / changes * 1e6, usage.megabytes())


def _add(name: str, followed: Followed, figures: Table) -> None:
    limit = DEAD if name == "held" else None
    figures.add(NAME, f"{name}: changes/s to visible", [followed.changes_per_second])
    figures.add(NAME, f"{name}: most dead rows in staging", [followed.staging], below=limit)
    figures.add(NAME, f"{name}: most dead rows in the tables of progress", [followed.books])
    for figure, share in SHARES:
        milliseconds = [percentile(followed.milliseconds, share)]
        figures.add(NAME, f"{name}: commit to visible, {figure}: ms", milliseconds, "{:.1f}")
    figures.add(NAME, f"{name}: CPU s per 1 M changes, writers included", [followed.cpu], "{:.1f}")
    for process, megabytes in followed.megabytes.items():
        figures.add(NAME, f"{name}: {process}: peak MB", [megabytes])
    print(
        f"{NAME}, {name}: {followed.changes_per_second:,.0f} changes/s to visible; most dead rows: staging "
        f"{followed.staging:,}, progress {followed.books:,}; {followed.cpu:.1f} CPU s per 1 M changes",
        flush=True,
    )
