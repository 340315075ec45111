"""From commit to frame: a session of PG Delta Stream's wire beside Debezium Embedded and our own WebSocket, in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from psycopg import Connection

from tests.benchmarks import programs, session_wire, stream_latency
from tests.benchmarks.debezium import DebeziumJava
from tests.benchmarks.errors import CannotRun
from tests.benchmarks.programs import Program
from tests.benchmarks.server import serve
from tests.benchmarks.stream_latency import COMMITS, LIMIT, PATIENCE, POLLS, SLOT, WARM_UP, Receive
from tests.benchmarks.table import Table
from tests.fixtures.postgres import Cluster

NAME = "session-latency"
SESSION, WEBSOCKET, DEBEZIUM = "session", "our WebSocket", "Debezium, tuned"
GOALS = {DEBEZIUM: 0.5, WEBSOCKET: 0.2}
"""The largest share that a session's median may be of the client's."""


def report(cluster: Cluster, figures: Table, scale: float, runs: int, classes: Path) -> None:
    """Each `runs` times, in turn, at a thousand commits a second; adds the figures."""
    commits = round(COMMITS * min(1.0, max(0.1, scale)))
    contenders = _contenders(WARM_UP + commits, classes, figures)
    found = stream_latency.in_turn(NAME, contenders, cluster, figures, runs, commits)
    for name, most in GOALS.items():
        if name in found:
            ratios = stream_latency.ratios(found[SESSION], found[name])
            figures.add(NAME, f"session ÷ {name}, median", ratios, "{:.2f}", most=most)


def _contenders(events: int, classes: Path, figures: Table) -> dict[str, Receive]:
    found: dict[str, Receive] = {
        SESSION: partial(_session, events),
        WEBSOCKET: partial(stream_latency.websocket, events),
    }
    try:
        java = DebeziumJava(classes)
    except CannotRun as reason:
        print(f"{NAME}: {reason}", flush=True)
        figures.note(NAME, "Debezium", "left out")
    else:
        found[DEBEZIUM] = partial(stream_latency.debezium, java, POLLS["tuned"], events)
    return found


@contextmanager
def _session(events: int, cluster: Cluster, source: Connection) -> Iterator[Program]:
    with serve(cluster, SLOT, settings=session_wire.SETTINGS) as server:
        server.wait_active(source)
        url = session_wire.url(server, session_wire.init(server))
        with programs.module("receiver", events, LIMIT, WARM_UP, "session", url) as receiver:
            receiver.expect("connected", PATIENCE)
            yield receiver
            server.require_steady()
