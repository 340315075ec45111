"""200 commits a second: when each is visible in the log, at a follower, and at a subscriber."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import Connection

from tests.benchmarks import backlog, visible
from tests.benchmarks.follower_rig import Places, disable, enable, followers, places, subscription, wait_for_row
from tests.benchmarks.latency import PACE, SHARES
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.table import Table
from tests.benchmarks.visible import percentile
from tests.fixtures.postgres import Cluster

NAME = "followers-latency"
SECONDS = 10.0
SLOWER = 2.0
"""The goal: the median at a follower is at most so many times that in the log."""
LOOK = 0.001
_NEW = "select id from public.bench_rows where id > %s order by id"
Delays = dict[str, list[list[float]]]


class Watcher(threading.Thread):
    """Looks for new rows in a database again and again, and notes when it saw each."""

    def __init__(self, database: Connection, after: int) -> None:
        super().__init__(name="watcher", daemon=True)
        self._database, self._last = database, after
        self._stopping = threading.Event()
        self.seen: dict[int, float] = {}

    def run(self) -> None:
        while not self._stopping.wait(LOOK):
            found = self._database.execute(_NEW, (self._last,), prepare=True).fetchall()
            now = time.monotonic()
            self.seen.update((key, now) for (key,) in found)
            self._last = max([self._last, *(key for (key,) in found)])

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """The log and a follower together, then a subscriber, `runs` times."""
    seconds = SECONDS * min(1.0, max(0.2, scale))
    found: Delays = {"log": [], "follower": [], "subscriber": []}
    others: list[float] = []
    with (
        backlog.table(cluster) as source,
        places(cluster, source) as at,
        followers(at) as ours,
        at.database("ours") as here,
        at.database("native") as native,
    ):
        ours.add("ours")
        ours.wait("ours", "following")
        with subscription(at, native, enabled=False) as name, visible.reader(ours.server, source) as reader:
            wait_for_row(here, visible.WARM_UP)
            written = visible.WARM_UP
            for _ in range(runs):
                meter = OtherPrograms(*at.pids, ours.server.process.pid)
                committed, delays = _run(at, here, written, seconds)
                reader.wait_for(committed)
                found["follower"].append(delays)
                found["log"].append(_delays(committed, reader.seen))
                written = max(committed)
                ours.change("pause", "ours", "paused")
                enable(name, native)
                wait_for_row(native, written)
                committed, delays = _run(at, native, written, seconds)
                found["subscriber"].append(delays)
                written = max(committed)
                disable(at, name, native)
                ours.change("resume", "ours", "following")
                wait_for_row(here, written)
                others.append(meter.cores())
            ours.server.require_steady()
    _add(found, figures)
    figures.add(NAME, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)


def _run(at: Places, database: Connection, after: int, seconds: float) -> tuple[dict[int, float], list[float]]:
    """Write for `seconds`; return when each key was committed, and its delays until it was visible in that database."""
    with _watching(database, after) as watcher:
        committed = visible.write(at.cluster, after, round(PACE * seconds), PACE)
        wait_for_row(database, max(committed))
        time.sleep(0.1)
    return committed, _delays(committed, watcher.seen)


def _delays(committed: dict[int, float], seen: dict[int, float]) -> list[float]:
    """Milliseconds, sorted."""
    return sorted((seen[key] - at) * 1000 for key, at in committed.items())


@contextmanager
def _watching(database: Connection, after: int) -> Iterator[Watcher]:
    """Over its own session."""
    with psycopg.connect(database.info.dsn, autocommit=True) as session:
        watcher = Watcher(session, after)
        watcher.start()
        try:
            yield watcher
        finally:
            watcher.stop()


def _add(found: Delays, figures: Table) -> None:
    for who, delays in found.items():
        for figure, share in SHARES:
            values = [percentile(each, share) for each in delays]
            figures.add(NAME, f"commit to visible, {who}, {figure}: ms", values, "{:.1f}")
    medians = [
        percentile(there, 0.5) / percentile(log, 0.5)
        for there, log in zip(found["follower"], found["log"], strict=True)
    ]
    figures.add(NAME, "follower ÷ log, median", medians, "{:.2f}", most=SLOWER)
