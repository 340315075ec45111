"""From commit to received: walstream's wire beside our own WebSocket, in turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median

from psycopg import Connection

from tests.benchmarks import programs, stream_latency
from tests.benchmarks.latency import SHARES
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.programs import Program
from tests.benchmarks.server import serve
from tests.benchmarks.stream_latency import COMMITS, LIMIT, PATIENCE, SLOT, WARM_UP, Latencies, Receive
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.benchmarks.visible import percentile
from tests.fixtures.postgres import Cluster, free_port

NAME = "grpc-latency"
WALSTREAM, WEBSOCKET = "walstream", "our WebSocket"
GOAL = 1.25
"""How many times the WebSocket's median walstream's is, at most."""


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Each `runs` times, in turn, at a thousand commits a second; adds the figures."""
    commits = round(COMMITS * min(1.0, max(0.1, scale)))
    contenders: dict[str, Receive] = {
        WALSTREAM: partial(_walstream, WARM_UP + commits),
        WEBSOCKET: partial(stream_latency.websocket, WARM_UP + commits),
    }
    found: defaultdict[str, list[Latencies]] = defaultdict(list)
    others: list[float] = []
    for run in range(1, runs + 1):
        for name, receive in contenders.items():
            meter = OtherPrograms(postmaster(cluster))
            found[name].append(stream_latency.measure(cluster, receive, commits))
            others.append(meter.cores())
            stream_latency.say(f"{NAME}, run {run} of {runs}: {name}", found[name][-1], others[-1])
    for name, measured in found.items():
        figures.add(NAME, f"{name}: commits/s", [each.commits_per_second for each in measured])
        for figure, share in SHARES:
            milliseconds = [percentile(each.from_commit, share) for each in measured]
            figures.add(NAME, f"{name}: commit to received, {figure}: ms", milliseconds, "{:.2f}")
    pairs = zip(found[WALSTREAM], found[WEBSOCKET], strict=True)
    ratios = [median(mine.from_commit) / median(theirs.from_commit) for mine, theirs in pairs]
    figures.add(NAME, "walstream ÷ our WebSocket, median", ratios, "{:.2f}", most=GOAL)
    figures.add(NAME, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)


@contextmanager
def _walstream(events: int, cluster: Cluster, source: Connection) -> Iterator[Program]:
    port = free_port()
    settings = {"PIPELINE_GRPC_PORT": str(port), "PIPELINE_WIRES": "walstream"}
    with serve(cluster, SLOT, settings=settings) as server:
        server.wait_active(source)
        address = f"127.0.0.1:{port}"
        with programs.module("receiver", events, LIMIT, WARM_UP, "walstream", address) as receiver:
            receiver.expect("connected", PATIENCE)
            yield receiver
            server.require_steady()
