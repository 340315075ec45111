"""One cursor stream over a backlog: how many events a second a WebSocket client is sent."""

from __future__ import annotations

from tests.benchmarks import api, processes, programs
from tests.benchmarks.consumer_backlog import drained
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.programs import Program
from tests.benchmarks.server import PipelineServer
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster

NAME = "stream-throughput"
EVENTS = 150_000
MODES = ("events", "transactions")
PATIENCE = 300.0


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Stream the same log from its beginning, `runs` times in each mode, and add the figures."""
    events = max(1000, round(EVENTS * scale))
    rates: dict[str, list[float]] = {mode: [] for mode in MODES}
    costs: dict[str, list[float]] = {mode: [] for mode in MODES}
    meter = OtherPrograms(postmaster(cluster))
    with drained(cluster, events) as (server, _):
        for run in range(1, runs + 1):
            for mode in MODES:
                seconds, cpu = _stream(server, f"{mode}-{run}", mode, events)
                rates[mode].append(events / seconds)
                costs[mode].append(cpu / events * 1e6)
                print(f"{NAME}, run {run} of {runs}: mode {mode}: {rates[mode][-1]:,.0f} events/s", flush=True)
    for mode in MODES:
        figures.add(NAME, f"one cursor, mode {mode}: events/s", rates[mode])
        figures.add(NAME, f"one cursor, mode {mode}: CPU of the API's process, µs per event", costs[mode])
    figures.add(NAME, "cores that other programs took meanwhile", [meter.cores()], "{:.2f}", below=QUIET_CORES)


def _stream(server: PipelineServer, name: str, mode: str, events: int) -> tuple[float, float]:
    """Seconds from the first frame to the last, none missing, all in order; and CPU seconds of the API's process."""
    api.create_consumer(server, name, "cursor", start="beginning")
    with programs.module("crowd", events, PATIENCE, api.stream(server, name, mode)) as client:
        client.expect("connected", PATIENCE)
        role = server.role("api")
        cpu = processes.cpu_seconds(role)
        return client_seconds(client, events, PATIENCE + 10), processes.cpu_seconds(role) - cpu


def client_seconds(crowd: Program, events: int, patience: float) -> float:
    """Return the seconds that the next client of a crowd took. Raises BenchmarkFailed if it lacks events."""
    received, in_order, seconds = crowd.expect("client", patience).split()
    if (int(received), in_order) != (events, "True"):
        raise BenchmarkFailed(f"a client received {received} of {events} events, in order: {in_order}")
    return float(seconds)
