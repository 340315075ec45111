"""A burst that one slot cannot follow, followed by one and by four: how late the log is, second by second.

As in `catchup`, the pipeline database is on its own server, and the source logs its running transactions often.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from pathlib import Path

from psycopg import Connection

from tests.benchmarks import catchup, plot, visible
from tests.benchmarks.backlog import PIECES, SOURCE_DATABASE, fill_statement, table
from tests.benchmarks.contenders import LIMIT, visible_events
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import DATABASE, PipelineServer, durable_server, serve
from tests.benchmarks.table import Table
from tests.benchmarks.usage import WALSENDER, Usage, postmaster
from tests.fixtures.postgres import Cluster

NAME = SLOT = "burst"
SLOTS = (1, 4)
THRESHOLD = "16MB"
TRANSACTIONS, ROWS = 6_000, 100
"""Written several times as fast as they are read."""
INTERVAL = 0.25
"""Seconds between two looks."""
PLOT = "lag-burst.svg"
Looks = list[tuple[float, int, int]]
"""Seconds since the burst began, rows committed, rows visible."""


def report(cluster: Cluster, figures: Table, scale: float, docs: Path | None) -> None:
    """The same burst for each number of slots, once; adds the figures and draws the plot into `docs`, if given."""
    transactions = PIECES * max(10, round(TRANSACTIONS / PIECES * scale))
    series: dict[str, plot.Points] = {}
    with durable_server() as databases:
        meter = OtherPrograms(postmaster(cluster), postmaster(databases))
        for slots in SLOTS:
            name = "1 slot" if slots == 1 else f"{slots} slots"
            looks, read, megabytes = _follow(cluster, databases, slots, transactions)
            series[name] = lag(looks)
            _add(name, looks, series[name], read, figures)
            for process, size in megabytes.items():
                figures.add(NAME, f"{name}: {process}: peak MB", [size])
        others = meter.cores()
    figures.add(NAME, "cores that other programs took meanwhile", [others], "{:.2f}", below=QUIET_CORES)
    if docs:
        title = f"A burst of {transactions * ROWS:,} changes: how late the log is"
        (docs / PLOT).write_text(plot.lines(title, series, "seconds since the burst began", "lag, seconds"))


def lag(looks: Looks) -> plot.Points:
    """At each look, for how long what is not visible yet has been committed, in seconds."""
    times, committed = [at for at, _, _ in looks], [rows for _, rows, _ in looks]
    points = []
    for at, written, seen in looks:
        since = times[min(len(times) - 1, bisect_right(committed, seen))]
        points.append((at, max(0.0, at - since) if seen < written else 0.0))
    return points


def _follow(cluster: Cluster, databases: Cluster, slots: int, transactions: int) -> tuple[Looks, int, dict[str, float]]:
    with (
        table(cluster) as source,
        serve(cluster, SLOT, settings=catchup.settings(slots, THRESHOLD), databases=databases) as server,
        databases.connect(DATABASE) as database,
    ):
        server.wait_active(source)
        with visible.reader(server, source):
            pass
        with Usage(server) as usage:
            looks = _watch(cluster, server, source, database, transactions)
        server.require_steady()
    return looks, usage.most(WALSENDER), usage.megabytes()


def _watch(
    cluster: Cluster, server: PipelineServer, source: Connection, database: Connection, transactions: int
) -> Looks:
    before, begin = visible_events(database), time.monotonic()
    writer = threading.Thread(target=_write, args=(cluster, transactions), daemon=True)
    writer.start()
    looks: Looks = []
    while not looks or looks[-1][2] < transactions * ROWS:
        writing = writer.is_alive()
        row = source.execute("select max(id) from bench_rows").fetchone()
        assert row is not None
        looks.append((time.monotonic() - begin, int(row[0]), visible_events(database) - before))
        server.require_alive()
        if looks[-1][0] > LIMIT or not (writing or looks[-1][1] == transactions * ROWS):
            raise BenchmarkFailed(f"(seconds, committed, visible) are {looks[-1]}: {server.log_tail()}")
        time.sleep(INTERVAL)
    writer.join()
    return looks


def _write(cluster: Cluster, transactions: int) -> None:
    with cluster.connect(SOURCE_DATABASE) as connection:
        connection.execute("set synchronous_commit = off")
        each = transactions // PIECES
        for piece in range(PIECES):
            connection.execute(fill_statement(each, ROWS, after=visible.WARM_UP + piece * each * ROWS))
            connection.execute("select pg_log_standby_snapshot()")


def _add(name: str, looks: Looks, late: plot.Points, read: int, figures: Table) -> None:
    written = next(at for at, rows, _ in looks if rows == looks[-1][1])
    most = max(seconds for _, seconds in late)
    figures.add(NAME, f"{name}: read at once", [read])
    figures.add(NAME, f"{name}: s until the burst was written", [written], "{:.1f}")
    figures.add(NAME, f"{name}: s until it was visible", [looks[-1][0]], "{:.1f}")
    figures.add(NAME, f"{name}: greatest lag: s", [most], "{:.1f}")
    print(
        f"{NAME}, {name}: written in {written:.1f} s, visible after {looks[-1][0]:.1f} s, "
        f"at most {most:.1f} s late; {read} slots read at once",
        flush=True,
    )
