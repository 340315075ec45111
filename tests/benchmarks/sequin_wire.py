"""Receive and acknowledge by Sequin's wire and by our REST, side by side: items a second, by the size of a batch."""

from __future__ import annotations

from collections import defaultdict

from tests.benchmarks import api
from tests.benchmarks.consumer_backlog import drained
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.record_workers import SEQUIN
from tests.benchmarks.records import CONSUMER, ITEMS, REST_WORKERS, SECONDS, fill, rate
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster

NAME = "sequin-wire"
BATCHES = (10, 100)
TURNS = 3
"""Of both ways in each run, one after the other, so that neither has the quieter time."""
LEAST = 0.8


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Both ways with each size of a batch, in turns on one queue, which is filled anew for each run."""
    items, seconds = max(20_000, round(ITEMS * scale)), SECONDS * min(1.0, max(0.1, scale))
    rates: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    meter = OtherPrograms(postmaster(cluster))
    with drained(cluster, items, {"PIPELINE_WIRES": "sequin"}) as (server, database):
        api.create_consumer(server, CONSUMER, "records", start="beginning")
        ways = {"REST": api.address(server), "Sequin's wire": api.address(server) + SEQUIN}
        for run in range(1, runs + 1):
            fill(server, database)
            for turn in range(TURNS):
                for batch in BATCHES:
                    for way in list(ways)[:: -1 if turn % 2 else 1]:
                        rates[way, batch].append(rate(REST_WORKERS, batch, ways[way], seconds))
                        print(
                            f"{NAME}, run {run} of {runs}: {way}, {batch}: {rates[way, batch][-1]:,.0f} items/s",
                            flush=True,
                        )
    for batch in BATCHES:
        rest, wire = (rates[way, batch] for way in ways)
        for way in ways:
            name = f"{way}, {REST_WORKERS} workers, batches of {batch}: items/s"
            figures.add(NAME, name, rates[way, batch])
        shares = [one / other for one, other in zip(wire, rest, strict=True)]
        figures.add(NAME, f"Sequin's wire ÷ REST, batches of {batch}", shares, "{:.2f}", least=LEAST)
    figures.add(NAME, "cores that other programs took meanwhile", [meter.cores()], "{:.2f}", below=QUIET_CORES)
