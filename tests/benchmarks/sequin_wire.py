"""Receive and acknowledge by Sequin's wire and by our REST, batch by batch in turns: items a second of each."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import ExitStack

from tests.benchmarks import api
from tests.benchmarks.consumer_backlog import drained
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.record_workers import SEQUIN, over_http
from tests.benchmarks.records import CONSUMER, ITEMS, fill
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster

NAME = "sequin-wire"
BATCHES = (10, 100)
WARM_UP = 10
LEAST = 0.8


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """One client that takes a batch by one way, then by the other: what disturbs one disturbs both."""
    rates: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    items = max(20_000, round(ITEMS * scale))
    meter = OtherPrograms(postmaster(cluster))
    with drained(cluster, items, {"PIPELINE_WIRES": "sequin"}) as (server, database):
        api.create_consumer(server, CONSUMER, "records", start="beginning")
        ways = {"REST": api.address(server), "Sequin's wire": api.address(server) + SEQUIN}
        for run in range(1, runs + 1):
            for batch in BATCHES:
                fill(server, database)
                for way, seconds in _turns(ways, batch, items // 3 // batch).items():
                    rates[way, batch].append(batch / seconds)
                    print(f"{NAME}, run {run} of {runs}: {way}, {batch}: {batch / seconds:,.0f} items/s", flush=True)
    for batch in BATCHES:
        for way in ways:
            figures.add(NAME, f"{way}, batches of {batch}: items/s", rates[way, batch])
        rest, wire = (rates[way, batch] for way in ways)
        shares = [one / other for one, other in zip(wire, rest, strict=True)]
        figures.add(NAME, f"Sequin's wire ÷ REST, batches of {batch}", shares, "{:.2f}", least=LEAST)
    figures.add(NAME, "cores that other programs took meanwhile", [meter.cores()], "{:.2f}", below=QUIET_CORES)


def _turns(ways: dict[str, str], batch: int, most: int) -> dict[str, float]:
    """Seconds for a batch, received and acknowledged, by way: the mean of as many as there is room for, up to 500."""
    count = min(500, most)
    spent = dict.fromkeys(ways, 0.0)
    with ExitStack() as stack:
        turns = {way: stack.enter_context(over_http(url, CONSUMER, batch)) for way, url in ways.items()}
        for number in range(-WARM_UP, count):
            for way in list(ways)[:: -1 if number % 2 else 1]:
                began = time.monotonic()
                if turns[way]() != batch:
                    raise BenchmarkFailed("nothing was left to receive: too few items")
                spent[way] += time.monotonic() - began if number >= 0 else 0.0
    return {way: seconds / count for way, seconds in spent.items()}
