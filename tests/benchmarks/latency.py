"""From commit to visible: a paced writer and a reader that LISTENs, in one process and on one clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg import Connection

from pipeline.events.log import CHANNEL
from tests.benchmarks.backlog import DATABASE as SOURCE
from tests.benchmarks.backlog import ROW, table
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import DATABASE, PipelineServer, serve
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster

PACE = 200
"""Commits a second."""
SECONDS = 20.0
PATIENCE = 30.0
"""Seconds for the last event to come."""
SLOT = "latency"


@dataclass(frozen=True)
class Latency:
    """`milliseconds`: from COMMIT having returned to the row seen, one a commit, sorted."""

    commits_per_second: float
    other_cores: float
    milliseconds: list[float]

    def percentile(self, share: float) -> float:
        return self.milliseconds[min(len(self.milliseconds) - 1, round(share * (len(self.milliseconds) - 1)))]


def measure(cluster: Cluster, seconds: float = SECONDS) -> Latency:
    """Single-row transactions at PACE on an idle server, each timed at the writer and at the reader."""
    with table(cluster) as source, serve(cluster, SLOT) as server:
        server.wait_active(source)
        with _reader(cluster, server) as reader:
            _warm_up(source, reader)
            meter = OtherPrograms(postmaster(cluster), server.process.pid)
            committed = _write(cluster, round(PACE * seconds))
            reader.wait_for(len(committed))
            others = meter.cores()
            server.require_steady()
    if missing := committed.keys() - reader.seen.keys():
        raise BenchmarkFailed(f"{len(missing)} of {len(committed)} commits were never seen")
    spent = max(committed.values()) - min(committed.values())
    delays = sorted((reader.seen[key] - at) * 1000 for key, at in committed.items())
    return Latency((len(committed) - 1) / spent, others, delays)


class _Reader(threading.Thread):
    """Reads `seq > last` whenever it is woken, as an application would, and notes when it saw each row."""

    def __init__(self, connection: Connection, server: PipelineServer) -> None:
        super().__init__(name="reader", daemon=True)
        self._connection = connection
        self._server = server
        self._stopping = threading.Event()
        self.seen: dict[str, float] = {}

    def run(self) -> None:
        last = 0
        self._connection.execute(f"listen {CHANNEL}")
        while not self._stopping.is_set():
            for _ in self._connection.notifies(timeout=0.5, stop_after=1):
                pass
            rows = self._connection.execute(
                "select seq, record_pk from sequin_events where seq > %s order by seq", (last,)
            ).fetchall()
            now = time.monotonic()
            for seq, key in rows:
                last = seq
                self.seen[key] = now

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def wait_for(self, rows: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(self.seen) < rows:
            self._server.require_alive()
            if not self.is_alive():
                raise BenchmarkFailed("the reader has failed; its error is above")
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"{len(self.seen)} of {rows} events were seen: {self._server.log_tail()}")
            time.sleep(0.05)


@contextmanager
def _reader(cluster: Cluster, server: PipelineServer) -> Iterator[_Reader]:
    with cluster.connect(DATABASE) as connection:
        reader = _Reader(connection, server)
        reader.start()
        try:
            yield reader
        finally:
            reader.stop()


def _warm_up(source: Connection, reader: _Reader) -> None:
    """One row must have come through before the clock runs: connections, caches, the first segment and partition."""
    source.execute(f"insert into bench_rows values ({ROW.format(0)})")
    reader.wait_for(1)
    reader.seen.clear()


def _write(cluster: Cluster, commits: int) -> dict[str, float]:
    """Commit at fixed times, late or not, and note when each COMMIT returned."""
    committed: dict[str, float] = {}
    statement = f"insert into bench_rows select {ROW.format('%(id)s::int')}".replace("% ", "%% ")
    with cluster.connect(SOURCE) as writer:
        begin = time.monotonic()
        for number in range(1, commits + 1):
            time.sleep(max(0.0, begin + number / PACE - time.monotonic()))
            writer.execute(statement, {"id": number}, prepare=True)
            committed[str(number)] = time.monotonic()
    return committed


def report(cluster: Cluster, figures: Table, seconds: float) -> None:
    """Measure once and add the figures."""
    found = measure(cluster, seconds)
    name, count = "latency", len(found.milliseconds)
    quiet = "" if found.other_cores < QUIET_CORES else ": NOT QUIET, repeat it"
    print(
        f"{name}: {count:,} commits at {found.commits_per_second:.0f}/s: median {found.percentile(0.5):.1f} ms, "
        f"99th percentile {found.percentile(0.99):.1f} ms, longest {found.milliseconds[-1]:.1f} ms; "
        f"other programs took {found.other_cores:.2f} cores{quiet}",
        flush=True,
    )
    figures.add(name, "commits/s", [found.commits_per_second])
    for figure, share in (("median", 0.5), ("99th percentile", 0.99), ("longest", 1.0)):
        figures.add(name, f"commit to visible, {figure}: ms", [found.percentile(share)], "{:.1f}")
    figures.add(name, "cores that other programs took meanwhile", [found.other_cores], "{:.2f}", below=QUIET_CORES)
