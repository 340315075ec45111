"""What the role grpc adds to a server: CPU until it is ready, and memory, in turn with a server without it."""

from __future__ import annotations

import socket
import time
from collections import defaultdict

import httpx
import psutil

from tests.benchmarks import api, backlog, processes
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import START_TIMEOUT, PipelineServer, serve
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster, free_port
from tests.fixtures.processes import children

NAME = "grpc-start"
SLOT = "grpc_start"
SETTLE_SECONDS = 2.0
"""After it is ready: then memory is what stays."""
CPU_GOAL, MEMORY_GOAL = 0.4, 25.0


def report(cluster: Cluster, figures: Table, runs: int) -> None:
    """Each `runs` times, in turn, and once before that does not count; adds the figures."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    meter = OtherPrograms(postmaster(cluster))
    for run in range(runs + 1):
        for port in ("off", str(free_port())):
            with backlog.table(cluster), serve(cluster, SLOT, settings={"PIPELINE_GRPC_PORT": port}) as server:
                _wait_ready(server, port)
                time.sleep(SETTLE_SECONDS)
                cpu, memory = processes.tree_cpu_seconds(server.process.pid), _pss(server.process.pid)
            if run:
                name = "without" if port == "off" else "with"
                found[f"{name} the role: CPU s"].append(cpu)
                found[f"{name} the role: MB (Pss)"].append(memory)
    for figure, values in found.items():
        figures.add(NAME, figure, values, "{:.2f}" if "CPU" in figure else "{:.0f}")
    for what, goal, form in (("CPU s", CPU_GOAL, "{:.2f}"), ("MB (Pss)", MEMORY_GOAL, "{:.0f}")):
        pairs = zip(found[f"with the role: {what}"], found[f"without the role: {what}"], strict=True)
        figures.add(NAME, f"more with the role: {what}", [a - b for a, b in pairs], form, most=goal)
    figures.add(NAME, "cores that other programs took meanwhile", [meter.cores()], "{:.2f}", below=QUIET_CORES)


def _wait_ready(server: PipelineServer, port: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not _is_ready(server, port):
        server.require_alive()
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"the server is not ready: {server.log_tail()}")
        time.sleep(0.05)


def _is_ready(server: PipelineServer, port: str) -> bool:
    try:
        if port != "off":
            socket.create_connection(("127.0.0.1", int(port)), 1).close()
        return httpx.get(f"{api.address(server)}/readyz").status_code == 200
    except (OSError, httpx.HTTPError):
        return False


def _pss(pid: int) -> float:
    """Of a process and its descendants, in MB."""
    own = float(psutil.Process(pid).memory_full_info().pss) / 1e6
    return own + sum(map(_pss, children(pid)))
