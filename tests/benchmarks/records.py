"""Receive and acknowledge: items a second, by workers and size of a batch."""

from __future__ import annotations

import time
from collections import defaultdict

from psycopg import Connection

from tests.benchmarks import api, programs
from tests.benchmarks.consumer_backlog import drained
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import DATABASE, PipelineServer
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster

NAME = "records"
ITEMS = 100_000
SECONDS = 1.0
"""That workers work."""
WORKERS, BATCHES = (1, 4, 16), (1, 10, 100)
REST_WORKERS = 4
CONSUMER = "bench"
PATIENCE = 300.0


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Each number of workers with each size of a batch on one queue, which is filled anew for each run."""
    items, seconds = max(20_000, round(ITEMS * scale)), SECONDS * min(1.0, max(0.1, scale))
    rates: defaultdict[str, list[float]] = defaultdict(list)
    meter = OtherPrograms(postmaster(cluster))
    with drained(cluster, items) as (server, database):
        api.create_consumer(server, CONSUMER, "records", start="beginning")
        for run in range(1, runs + 1):
            fill(server, database)
            for way, workers, batch, where in _combinations(cluster, server):
                name = f"{way}, {workers} {'worker' if workers == 1 else 'workers'}, batches of {batch}"
                rates[name].append(_rate(workers, batch, where, seconds))
                print(f"{NAME}, run {run} of {runs}: {name}: {rates[name][-1]:,.0f} items/s", flush=True)
    for name, values in rates.items():
        figures.add(NAME, f"{name}: items/s", values)
    figures.add(NAME, "cores that other programs took meanwhile", [meter.cores()], "{:.2f}", below=QUIET_CORES)


def _combinations(cluster: Cluster, server: PipelineServer) -> list[tuple[str, int, int, str]]:
    sql = [("SQL", workers, batch, cluster.tcp_dsn(DATABASE)) for workers in WORKERS for batch in BATCHES]
    rest = [("REST", REST_WORKERS, batch, api.address(server)) for batch in BATCHES]
    return sql + rest


def fill(server: PipelineServer, database: Connection) -> None:
    """All events are items again."""
    database.execute("select pipeline.reset_consumer(%s)", (CONSUMER,))
    deadline = time.monotonic() + PATIENCE
    query = "select folded_seq >= (select max(seq) from sequin_events) from pipeline.consumer_progress"
    while database.execute(query).fetchone() != (True,):
        server.require_alive()
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"the items are not complete after {PATIENCE:.0f} s: {server.log_tail()}")
        time.sleep(0.05)
    database.execute("vacuum analyze consumer_records")


def _rate(workers: int, batch: int, where: str, seconds: float) -> float:
    with programs.module("record_workers", workers, batch, seconds, CONSUMER, where) as running:
        running.expect("ready", PATIENCE)
        found = [(int(items), float(lasted)) for items, lasted in running.rest(PATIENCE)]
    if any(lasted < seconds for _, lasted in found):
        raise BenchmarkFailed("nothing was left to receive: too few items for the time")
    return sum(items for items, _ in found) / max(lasted for _, lasted in found)
