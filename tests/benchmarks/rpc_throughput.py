"""A backlog over gRPC: walstream's wire beside a bare grpcio server, EventLog beside our WebSocket, and a crowd."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from psycopg import Connection

from tests.benchmarks import api, backlog, processes, programs
from tests.benchmarks.contenders import wait_for_events
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import DATABASE, PipelineServer, serve
from tests.benchmarks.stream_throughput import client_seconds
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster, free_port
from tests.fixtures.processes import own_megabytes

NAME = "grpc-throughput"
EVENTS = 60_000
PATIENCE = 300.0
CROWD = 20
CROWD_SHARE = 0.1
"""Of the events, for each of the crowd."""
BARE_GOAL, WEBSOCKET_GOAL = 0.6, 1.0


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Each `runs` times, in turn, over the same log; adds the figures."""
    events = max(2_000, round(EVENTS * scale))
    rates: defaultdict[str, list[float]] = defaultdict(list)
    meter = OtherPrograms(postmaster(cluster))
    with tempfile.TemporaryDirectory(prefix="wal-bench-grpc-") as folder:
        for name, kind in (("one-row transactions", backlog.small), ("transactions of a hundred", backlog.wide)):
            with _drained(cluster, events, kind) as (server, database, address):
                count = _count(database)
                for run in range(1, runs + 1):
                    _wires(server, database, address, count, f"{name}", run, Path(folder) / "messages", rates)
                if kind is backlog.small:
                    _crowd(server, database, address, round(count * CROWD_SHARE), figures)
                for found in sorted(rates):
                    print(f"{NAME}: {found}: {', '.join(f'{rate:,.0f}' for rate in rates[found])} events/s", flush=True)
    _add(rates, figures)
    figures.add(NAME, "cores that other programs took meanwhile", [meter.cores()], "{:.2f}", below=QUIET_CORES)


def _add(rates: dict[str, list[float]], figures: Table) -> None:
    for name, found in rates.items():
        figures.add(NAME, f"{name}: events/s", found)
    for name in ("one-row transactions", "transactions of a hundred"):
        pairs = zip(rates[f"{name}, walstream"], rates[f"{name}, a bare grpcio server"], strict=True)
        figures.add(NAME, f"{name}, walstream ÷ bare", [a / b for a, b in pairs], "{:.2f}", least=BARE_GOAL)
        pairs = zip(rates[f"{name}, EventLog"], rates[f"{name}, our WebSocket"], strict=True)
        figures.add(
            NAME, f"{name}, EventLog ÷ our WebSocket", [a / b for a, b in pairs], "{:.2f}", least=WEBSOCKET_GOAL
        )


@contextmanager
def _drained(cluster: Cluster, events: int, kind: object) -> Iterator[tuple[PipelineServer, Connection, str]]:
    size = backlog.SMALL if kind is backlog.small else backlog.WIDE
    port = free_port()
    settings = {"PIPELINE_GRPC_PORT": str(port), "PIPELINE_WIRES": "walstream"}
    with (
        kind(cluster, events / size) as made,  # type: ignore[operator]
        serve(cluster, backlog.SLOT, settings=settings) as server,
        cluster.connect(DATABASE) as database,
    ):
        wait_for_events(server, database, made.changes)
        database.execute("vacuum analyze sequin_events")
        yield server, database, f"127.0.0.1:{port}"


def _count(database: Connection) -> int:
    row = database.execute("select count(*) from sequin_events where action <> 'message'").fetchone()
    assert row is not None
    return int(row[0])


def _wires(
    server: PipelineServer,
    database: Connection,
    address: str,
    events: int,
    name: str,
    run: int,
    file: Path,
    rates: dict[str, list[float]],
) -> None:
    """One run of each."""
    database.execute("select pipeline.reset_consumer('walstream', 'beginning')")
    rates[f"{name}, walstream"].append(events / _client("walstream", address, events, str(file)))
    with _bare(file) as bare:
        rates[f"{name}, a bare grpcio server"].append(events / _client("walstream", bare, events))
    for kind in ("EventLog", "our WebSocket"):
        consumer = f"{kind.split()[-1]}-{run}"
        api.create_consumer(server, consumer, "cursor", start="beginning")
        if kind == "EventLog":
            seconds = _client("event-log", address, events, consumer)
        else:
            with programs.module("crowd", events, PATIENCE, api.stream(server, consumer, "events")) as client:
                client.expect("connected", PATIENCE)
                seconds = client_seconds(client, events, PATIENCE + 10)
        rates[f"{name}, {kind}"].append(events / seconds)


def _client(how: str, address: str, events: int, *rest: str) -> float:
    with programs.module("rpc_client", how, address, events, PATIENCE, *rest) as client:
        client.expect("connected", PATIENCE)
        seconds = client_seconds(client, events, PATIENCE + 10)
        client.rest(PATIENCE)
        return seconds


@contextmanager
def _bare(file: Path) -> Iterator[str]:
    port = free_port()
    with programs.module("rpc_bare", file, port) as server:
        server.expect("listening", PATIENCE)
        yield f"127.0.0.1:{port}"


def _crowd(server: PipelineServer, database: Connection, address: str, events: int, figures: Table) -> None:
    """Twenty sessions at once, of which one never reads and one never acknowledges."""
    database.execute("select pipeline.reset_consumer('walstream', 'beginning')")
    role = server.role("grpc")
    before, cpu = own_megabytes(role), processes.cpu_seconds(role)
    with ExitStack() as stack:
        for how in ("deaf", "mute"):
            stack.enter_context(programs.module("rpc_client", how, address)).expect("connected", PATIENCE)
        clients = [
            stack.enter_context(programs.module("rpc_client", "walstream", address, events, PATIENCE))
            for _ in range(CROWD - 2)
        ]
        for client in clients:
            client.expect("connected", PATIENCE)
        seconds = [client_seconds(client, events, PATIENCE + 10) for client in clients]
        grown = own_megabytes(role) - before
    figures.add(NAME, f"{CROWD} sessions: events/s of each, the slowest", [events / max(seconds)])
    figures.add(NAME, f"{CROWD} sessions: events/s of each, the quickest", [events / min(seconds)])
    figures.add(NAME, f"{CROWD} sessions: events/s of all together", [events * len(seconds) / max(seconds)])
    figures.add(NAME, f"{CROWD} sessions: CPU s of the role", [processes.cpu_seconds(role) - cpu], "{:.1f}")
    figures.add(NAME, "memory of the role for each session: MB", [grown / CROWD], "{:.1f}")
