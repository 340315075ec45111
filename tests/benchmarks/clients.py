"""Many WebSocket clients while a writer commits: events a second, memory for each, and whether each got everything."""

from __future__ import annotations

from psycopg import Connection

from tests.benchmarks import api, processes, programs
from tests.benchmarks.backlog import ROW, SOURCE_DATABASE, table
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import DATABASE, PipelineServer, serve
from tests.benchmarks.stream_throughput import client_seconds
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster
from tests.fixtures.processes import resident_megabytes

NAME = "clients"
IDLE, BUSY = 200, 20
PACE, SECONDS = 1000, 20.0
"""Commits a second, and for how long."""
PATIENCE = 120.0
SLOT = "clients"


def report(cluster: Cluster, figures: Table, scale: float) -> None:
    """Add figures of 200 clients of an idle table and 20 of a busy one; one run."""
    commits = round(PACE * SECONDS * min(1.0, max(0.1, scale)))
    meter = OtherPrograms(postmaster(cluster))
    with table(cluster) as source, serve(cluster, SLOT) as server:
        server.wait_active(source)
        found = _measure(cluster, source, server, commits)
        server.require_steady()
    for figure, value, pattern in found:
        figures.add(NAME, figure, [value], pattern)
        print(f"{NAME}: {figure}: {pattern.format(value)}", flush=True)
    figures.add(NAME, "cores that other programs took meanwhile", [meter.cores()], "{:.2f}", below=QUIET_CORES)


def _measure(
    cluster: Cluster, source: Connection, server: PipelineServer, commits: int
) -> list[tuple[str, float, str]]:
    _warm_up(source, server)
    idle, busy = _create(cluster, server, "idle", IDLE), _create(cluster, server, "busy", BUSY)
    role = server.role("api")
    empty = resident_megabytes(role)
    with programs.module("crowd", 0, 10 * PATIENCE, *idle) as waiting:
        waiting.expect("connected", PATIENCE)
        with_idle = resident_megabytes(role)
        with programs.module("crowd", commits, SECONDS + PATIENCE, *busy) as reading:
            reading.expect("connected", PATIENCE)
            cpu = processes.cpu_seconds(role)
            with programs.module("writer", cluster.tcp_dsn(SOURCE_DATABASE), 0, commits, PACE) as writer:
                written = writer.rest(SECONDS + PATIENCE)
            took = [client_seconds(reading, commits, SECONDS + PATIENCE + 10) for _ in busy]
            seconds = max(took)
            cpu = processes.cpu_seconds(role) - cpu
            with_all = resident_megabytes(role)
        waiting.require_running()
    spent = (int(written[-1][1]) - int(written[0][1])) / 1e6
    return [
        ("commits/s", (commits - 1) / spent, "{:,.0f}"),
        (f"delivered to {BUSY} busy clients, {IDLE} idle ones beside: events/s", BUSY * commits / seconds, "{:,.0f}"),
        ("busy clients that got every event once and in order, else this fails", len(took), "{:.0f}"),
        ("memory of the API's process without clients: MB", empty, "{:.0f}"),
        ("memory for an idle client: kB", (with_idle - empty) * 1000 / IDLE, "{:.0f}"),
        ("memory for a client, idle or busy, after the load: kB", (with_all - empty) * 1000 / (IDLE + BUSY), "{:.0f}"),
        ("CPU of the API's process: cores", cpu / seconds, "{:.2f}"),
    ]


def _create(cluster: Cluster, server: PipelineServer, name: str, count: int) -> list[str]:
    """This many cursors; the URLs of their streams."""
    tables = ["public.bench_rows"] if name == "busy" else ["public.nobody_writes_this"]
    api.create_consumer(server, f"{name}-0", "cursor", tables=tables)
    with cluster.connect(DATABASE) as database:
        database.execute(
            "select pipeline.create_consumer(%s || '-' || number, 'cursor', %s) from generate_series(1, %s) number",
            (name, tables, count - 1),
        )
    return [api.stream(server, f"{name}-{number}") for number in range(count)]


def _warm_up(source: Connection, server: PipelineServer) -> None:
    """One client has had an event: what the server loads at the first one is no cost of a client."""
    api.create_consumer(server, "first", "cursor")
    with programs.module("crowd", 1, PATIENCE, api.stream(server, "first")) as client:
        client.expect("connected", PATIENCE)
        source.execute(f"insert into bench_rows values ({ROW.format(0)})")
        client_seconds(client, 1, PATIENCE + 10)
