"""What records consumers cost the shuffler: a backlog drained with none, one, five, and one that does not collapse."""

from __future__ import annotations

import time
from collections import defaultdict

from psycopg import Connection

from pipeline.postgres import migrations
from tests.benchmarks.backlog import BACKLOGS, SMALL, SOURCE_DATABASE, Backlog, copied_slot
from tests.benchmarks.contenders import OF_A_BACKLOG, wait_for_events
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import DATABASE, PipelineServer, serve
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster

NAME = "fold"
CHANGES = {"bulk": 150_000, "small": 60_000}
"""So many that one transaction of the bulk is above what is folded in the transaction that moves it."""
EVERY = -1
"""One consumer, with an item for every change."""
CONSUMERS = (0, 1, 5, EVERY)
MOST_RUNS = 2
"""Each is eight drains, and five consumers take their time."""
PATIENCE = 600.0
_SIZES = {"bulk": 1_300_000, "small": SMALL}


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Drain both backlogs with each number of consumers, in turn, at most MOST_RUNS times, and add the figures."""
    runs = min(runs, MOST_RUNS)
    others: list[float] = []
    for name, changes in CHANGES.items():
        visible: defaultdict[int, list[float]] = defaultdict(list)
        folded: defaultdict[int, list[float]] = defaultdict(list)
        with BACKLOGS[name](cluster, scale * changes / _SIZES[name]) as backlog:
            for run in range(1, runs + 1):
                for count in CONSUMERS:
                    meter = OtherPrograms(postmaster(cluster))
                    seconds = _drain(cluster, backlog, count, f"fold_{run}_{CONSUMERS.index(count)}")
                    others.append(meter.cores())
                    visible[count].append(backlog.changes / seconds[0])
                    folded[count].append(backlog.changes / seconds[1])
                    _say(f"run {run} of {runs}: {name}, {_consumers(count)}", visible[count], folded[count], others)
        _add(name, visible, folded, figures)
    figures.add(NAME, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)


def _drain(cluster: Cluster, backlog: Backlog, count: int, slot: str) -> tuple[float, float]:
    """Seconds from the slot being read until all is visible, and until all is in the items of all consumers."""
    with (
        copied_slot(cluster, slot),
        serve(cluster, slot, lambda cluster: _create(cluster, count), OF_A_BACKLOG) as server,
        cluster.connect(SOURCE_DATABASE) as source,
        cluster.connect(DATABASE) as database,
    ):
        server.wait_active(source)
        started = time.monotonic()
        wait_for_events(server, database, backlog.changes)
        visible = time.monotonic() - started
        _wait_for_items(server, database)
        folded = time.monotonic() - started
        _verify(database, backlog, count)
        server.require_steady()
    return visible, folded


def _create(cluster: Cluster, count: int) -> None:
    """Migrate, and make so many consumers that want everything."""
    migrations.upgrade(cluster.dsn(DATABASE))
    with cluster.connect(DATABASE) as database:
        query = "select pipeline.create_consumer('fold-' || number, collapse => %s) from generate_series(1, %s) number"
        database.execute(query, (count != EVERY, abs(count)))


def _wait_for_items(server: PipelineServer, database: Connection) -> None:
    deadline = time.monotonic() + PATIENCE
    head = "select max(seq) from sequin_events"
    query = f"select coalesce(min(folded_seq) >= ({head}), true) from pipeline.consumer_progress"
    while database.execute(query).fetchone() != (True,):
        server.require_alive()
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"the items are not complete after {PATIENCE:.0f} s: {server.log_tail()}")
        time.sleep(0.025)


def _verify(database: Connection, backlog: Backlog, count: int) -> None:
    """Each consumer has one item for each row that ever was, or for each change."""
    what = "*" if count == EVERY else "distinct record_pk"
    keys = database.execute(f"select count({what}) from sequin_events".encode()).fetchone()
    items = database.execute("select consumer_id, count(*) from consumer_records group by 1").fetchall()
    if keys is None or [number for _, number in items] != [keys[0]] * abs(count):
        raise BenchmarkFailed(f"{backlog.name}: items by consumer are {items}; there are {keys} of {what}")


def _add(name: str, visible: dict[int, list[float]], folded: dict[int, list[float]], figures: Table) -> None:
    for count in CONSUMERS:
        with_them = f"{name}, {_consumers(count)}"
        figures.add(NAME, f"{with_them}: changes/s to visible", visible[count])
        if count:
            figures.add(NAME, f"{with_them}: changes/s to items", folded[count])
            rates = zip(folded[count], folded[0], strict=True)
            cost = [(1 / here - 1 / without) / abs(count) * 1e6 for here, without in rates]
            figures.add(NAME, f"{with_them}: each adds µs to a change", cost, "{:.1f}")
    for what, of in (("visible", visible), ("items", folded)):
        slower = [one / every for one, every in zip(of[1], of[EVERY], strict=True)]
        figures.add(NAME, f"{name}, every change: times the time of one consumer, to {what}", slower, "{:.2f}")


def _say(where: str, visible: list[float], folded: list[float], others: list[float]) -> None:
    quiet = "" if others[-1] < QUIET_CORES else ": NOT QUIET, repeat it"
    print(
        f"{NAME}, {where}: {visible[-1]:,.0f} changes/s to visible, {folded[-1]:,.0f}/s to items; "
        f"other programs took {others[-1]:.2f} cores{quiet}",
        flush=True,
    )


def _consumers(count: int) -> str:
    return {0: "no consumer", 1: "1 consumer", EVERY: "1 consumer of every change"}.get(count, f"{count} consumers")
