"""From commit to received: walstream's wire beside our own WebSocket, in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from psycopg import Connection

from tests.benchmarks import programs, stream_latency
from tests.benchmarks.programs import Program
from tests.benchmarks.server import serve
from tests.benchmarks.stream_latency import COMMITS, LIMIT, PATIENCE, SLOT, WARM_UP, Receive
from tests.benchmarks.table import Table
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
    found = stream_latency.in_turn(NAME, contenders, cluster, figures, runs, commits)
    ratios = stream_latency.ratios(found[WALSTREAM], found[WEBSOCKET])
    figures.add(NAME, "walstream ÷ our WebSocket, median", ratios, "{:.2f}", most=GOAL)


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
