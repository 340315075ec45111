"""When a commit becomes visible: a paced writer and a reader that LISTENs, in one process and on one clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from psycopg import Connection

from pipeline.log.table import CHANNEL
from tests.benchmarks.backlog import ROW, SOURCE_DATABASE
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.server import DATABASE, PipelineServer
from tests.fixtures.postgres import Cluster

PATIENCE = 30.0
"""Seconds for the last event to come."""
WARM_UP = 0
"""The key of the row that comes first."""
_INSERT = f"insert into bench_rows select {ROW.format('%(id)s::int')}".replace("% ", "%% ")


class Reader(threading.Thread):
    """Reads `seq > last` whenever it is woken, as an application would, and notes when it saw each row of bench_rows.

    Of other tables' rows it only learns that they are there.
    """

    def __init__(self, connection: Connection, server: PipelineServer) -> None:
        super().__init__(name="reader", daemon=True)
        self._connection = connection
        self._server = server
        self._stopping = threading.Event()
        self.seen: dict[int, float] = {}

    def run(self) -> None:
        last = 0
        self._connection.execute(f"listen {CHANNEL}")
        while not self._stopping.is_set():
            for _ in self._connection.notifies(timeout=0.5, stop_after=1):
                pass
            head, keys = self._connection.execute(
                "select max(seq), array_agg(record_pk) filter (where source_table_name = 'bench_rows')"
                " from sequin_events where seq > %s",
                (last,),
            ).fetchall()[0]
            now = time.monotonic()
            last = head or last
            self.seen.update((int(key), now) for key in keys or ())

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def wait_for(self, keys: Iterable[int], patience: float = PATIENCE) -> None:
        """Until all these rows were seen. Raises BenchmarkFailed."""
        deadline = time.monotonic() + patience
        while missing := [key for key in keys if key not in self.seen]:
            self._server.require_alive()
            if not self.is_alive():
                raise BenchmarkFailed("the reader has failed; its error is above")
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"{len(missing)} commits were never seen: {self._server.log_tail()}")
            time.sleep(0.05)


@contextmanager
def reader(server: PipelineServer, source: Connection) -> Iterator[Reader]:
    """One that has seen a first row: connections, caches, the first segment and partition are no part of a figure."""
    with server.databases.connect(DATABASE) as connection:
        reading = Reader(connection, server)
        reading.start()
        try:
            source.execute(f"insert into bench_rows values ({ROW.format(WARM_UP)})")
            reading.wait_for([WARM_UP])
            yield reading
        finally:
            reading.stop()


def write(cluster: Cluster, after: int, commits: int, pace: float) -> dict[int, float]:
    """Insert rows from number `after` + 1 on at fixed times, late or not; when each COMMIT returned."""
    committed: dict[int, float] = {}
    with cluster.connect(SOURCE_DATABASE) as writer:
        begin = time.monotonic()
        for number in range(1, commits + 1):
            time.sleep(max(0.0, begin + number / pace - time.monotonic()))
            writer.execute(_INSERT, {"id": after + number}, prepare=True)
            committed[after + number] = time.monotonic()
    return committed


@contextmanager
def writing(cluster: Cluster, after: int, writers: int, pace: float) -> Iterator[dict[int, float]]:
    """The same by this many writers, `pace` rows a second together, for as long as the block."""
    ended, committed = threading.Event(), dict[int, float]()
    with ThreadPoolExecutor(writers) as pool:
        running = [
            pool.submit(_write_on, cluster, range(after + number, 2**31 - 1, writers), pace / writers, ended, committed)
            for number in range(1, writers + 1)
        ]
        try:
            yield committed
        finally:
            ended.set()
        for each in running:
            each.result()


def _write_on(
    cluster: Cluster, numbers: range, pace: float, ended: threading.Event, committed: dict[int, float]
) -> None:
    with cluster.connect(SOURCE_DATABASE) as writer:
        begin = time.monotonic()
        for count, number in enumerate(numbers, 1):
            if ended.wait(max(0.0, begin + count / pace - time.monotonic())):
                return
            writer.execute(_INSERT, {"id": number}, prepare=True)
            committed[number] = time.monotonic()


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of numbers in order, the one below which that share of them is."""
    return ordered[round(share * (len(ordered) - 1))]
