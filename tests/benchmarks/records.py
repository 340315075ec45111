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
WAYS = {
    "sql": "SQL",
    "hasty": "SQL, a receive does not wait for the disk",
    "bare": "bare table",
    "queue": "Queue",
    "http": "REST",
}
LEAST = {("queue", 1, 1): 5_000, ("http", REST_WORKERS, 100): 5_000, ("sql", 4, 100): 15_000}
"""Goals, by way, workers and size of a batch: items/s."""
LEAST_OF_BARE = 0.5
BARE = """
    drop table if exists bare_queue;
    create table bare_queue (like public.consumer_records including all);
    insert into bare_queue (consumer_id, source_table_oid, record_pk, unkeyed, seq, queued_seq, commit_lsn, commit_idx,
        action, record)
    select 1, r.source_table_oid, r.record_pk, r.unkeyed, r.seq, r.queued_seq, r.commit_lsn, r.commit_idx, r.action,
        e.record
    from public.consumer_records r join public.sequin_events e on e.seq = r.seq;
"""
"""The same columns, indexes and records, for those who do nothing but `for update skip locked`."""


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Each number of workers with each size of a batch, and every way, on queues that are refilled for each size."""
    items, seconds = max(20_000, round(ITEMS * scale)), SECONDS * min(1.0, max(0.1, scale))
    rates: defaultdict[tuple[str, int, int], list[float]] = defaultdict(list)
    meter = OtherPrograms(postmaster(cluster))
    with drained(cluster, items) as (server, database):
        api.create_consumer(server, CONSUMER, "records", start="beginning")
        for run in range(1, runs + 1):
            for batch in BATCHES:
                fill(server, database)
                database.execute(BARE)
                database.execute("vacuum analyze bare_queue")
                for way, workers, where in _combinations(cluster, server, batch):
                    rates[way, workers, batch].append(_rate(workers, batch, way, where, seconds))
                    rate = f"{rates[way, workers, batch][-1]:,.0f} items/s"
                    print(f"{NAME}, run {run} of {runs}: {_name(way, workers, batch)}: {rate}", flush=True)
    for key, values in rates.items():
        figures.add(NAME, f"{_name(*key)}: items/s", values, least=LEAST.get(key))
    for workers in WORKERS:
        bare, ours = rates["bare", workers, 1], rates["hasty", workers, 1]
        shares = [one / other for one, other in zip(ours, bare, strict=True)]
        figures.add(NAME, f"{_name('hasty', workers, 1)}, ÷ bare table", shares, "{:.2f}", least=LEAST_OF_BARE)
    figures.add(NAME, "cores that other programs took meanwhile", [meter.cores()], "{:.2f}", below=QUIET_CORES)


def _combinations(cluster: Cluster, server: PipelineServer, batch: int) -> list[tuple[str, int, str]]:
    dsn = cluster.tcp_dsn(DATABASE)
    ways = ("sql", "hasty", "bare") if batch == 1 else ("sql",)
    queue = [("queue", 1, dsn)] if batch == 1 else []
    return [
        *((way, workers, dsn) for workers in WORKERS for way in ways),
        *queue,
        ("http", REST_WORKERS, api.address(server)),
    ]


def _name(way: str, workers: int, batch: int) -> str:
    each = "one at a time" if way == "queue" else f"batches of {batch}"
    return f"{WAYS[way]}, {workers} {'worker' if workers == 1 else 'workers'}, {each}"


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


def _rate(workers: int, batch: int, way: str, where: str, seconds: float) -> float:
    size = 1 if way == "queue" else batch
    with programs.module("record_workers", workers, size, seconds, CONSUMER, way, where) as running:
        running.expect("ready", PATIENCE)
        found = [(int(items), float(lasted)) for items, lasted in running.rest(PATIENCE)]
    if any(lasted < seconds for _, lasted in found):
        raise BenchmarkFailed("nothing was left to receive: too few items for the time")
    return sum(items for items, _ in found) / max(lasted for _, lasted in found)
