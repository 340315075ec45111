"""Backlogs through one session beside pg_recvlogical: rates, memory of the API's process, and /healthz meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from psycopg import Connection

from tests.benchmarks import api, processes, programs, session_wire
from tests.benchmarks.backlog import BACKLOGS, Backlog, copied_slot
from tests.benchmarks.contenders import wait_for_events
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.peers import RecvLogical
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import DATABASE, PipelineServer, serve
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.benchmarks.visible import percentile
from tests.fixtures.background import BackgroundThread
from tests.fixtures.postgres import Cluster
from tests.fixtures.processes import peak_megabytes, resident_megabytes

NAMES = ("bulk", "small")
NAME, SLOT = "session-drain", "followed"
LIMIT = 600.0
"""Seconds after which a drain counts as stuck."""
RATE, MEGABYTES, HEALTH = 0.4, 64, 250
"""Goals: of pg_recvlogical's rate, at least; more than idle, at most; milliseconds of /healthz, at most."""
_ASK = 0.02


@dataclass(frozen=True)
class Drained:
    """One backlog by one session. `megabytes`: the API's process at most, less what it had before."""

    seconds: float
    frames: int
    longest: int
    megabytes: float
    cpu: float
    health: list[float]


class Health(BackgroundThread):
    """Asks /healthz all the time; milliseconds of each answer."""

    def __init__(self, server: PipelineServer) -> None:
        super().__init__()
        self._url = f"{api.address(server)}/healthz"
        self.milliseconds: list[float] = []

    def work(self) -> None:
        with httpx.Client(timeout=60) as client:
            client.get(self._url)
            while not self.stopped.wait(_ASK):
                started = time.monotonic()
                client.get(self._url).raise_for_status()
                self.milliseconds.append((time.monotonic() - started) * 1000)


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Both backlogs, each by sessions that were made before it and by pg_recvlogical, in turn; adds the figures."""
    for name in NAMES:
        _report(name, cluster, figures, scale, runs)


def _report(name: str, cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    made: list[tuple[PipelineServer, list[str]]] = []

    @contextmanager
    def following(source: Connection) -> Iterator[None]:
        """The server, which follows on its own slot, and the sessions."""
        with serve(cluster, SLOT, settings=session_wire.SETTINGS) as server:
            server.wait_active(source)
            made.append((server, [session_wire.init(server) for _ in range(runs)]))
            yield

    peer, others = RecvLogical(), list[float]()
    ours, theirs = list[Drained](), list[float]()
    with BACKLOGS[name](cluster, scale, following) as backlog:
        ((server, slots),) = made
        with server.databases.connect(DATABASE) as database:
            wait_for_events(server, database, backlog.changes)  # its own work is done before clocks run
        for run, slot in enumerate(slots, 1):
            meter = OtherPrograms(postmaster(cluster), server.process.pid)
            ours.append(_drain(server, backlog, slot))
            with copied_slot(cluster, f"copy_{run}") as copy:
                theirs.append(peer.drain(cluster, backlog, copy).seconds)
            others.append(meter.cores())
            _say(f"{name}, run {run} of {runs}", backlog, ours[-1], theirs[-1], others[-1])
        server.require_steady()
    _add(name, backlog, ours, theirs, figures)
    figures.add(NAME, f"{name}: cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)


def _drain(server: PipelineServer, backlog: Backlog, slot: str) -> Drained:
    role = server.role("api")
    before, cpu = resident_megabytes(role), processes.cpu_seconds(role)
    Path(f"/proc/{role}/clear_refs").write_text("5")  # the peak begins again
    with (
        Health(server) as health,
        programs.module("session_client", server.http_port, slot, backlog.changes, LIMIT) as client,
    ):
        client.expect("connected", LIMIT)
        changes, seconds, frames, longest = client.expect("drained", LIMIT).split()
    if int(changes) != backlog.changes:
        raise BenchmarkFailed(f"{changes} of {backlog.changes} changes came: {server.log_tail()}")
    return Drained(
        float(seconds),
        int(frames),
        int(longest),
        peak_megabytes(role) - before,
        processes.cpu_seconds(role) - cpu,
        sorted(health.milliseconds),
    )


def _add(name: str, backlog: Backlog, ours: list[Drained], theirs: list[float], figures: Table) -> None:
    figures.add(NAME, f"{name}, one session: changes/s", [backlog.changes / each.seconds for each in ours])
    figures.add(NAME, f"{name}, pg_recvlogical to a file: changes/s", [backlog.changes / each for each in theirs])
    ratios = [their / our.seconds for our, their in zip(ours, theirs, strict=True)]
    figures.add(NAME, f"{name}, session ÷ pg_recvlogical", ratios, "{:.2f}", least=RATE)
    per_million = [each.cpu / backlog.changes * 1e6 for each in ours]
    figures.add(NAME, f"{name}, API's process: CPU s per 1 M changes", per_million, "{:.1f}")
    # A transaction of a million rows is one of the bulk's.
    most = MEGABYTES if name == "bulk" else None
    figures.add(NAME, f"{name}, API's process: peak MB above idle", [each.megabytes for each in ours], most=most)
    figures.add(NAME, f"{name}, longest frame: MB", [each.longest / 1e6 for each in ours], "{:.1f}")
    for figure, share in (("99th percentile", 0.99), ("longest", 1.0)):
        most = HEALTH if share < 1 else None
        milliseconds = [percentile(each.health, share) for each in ours]
        figures.add(NAME, f"{name}, /healthz meanwhile, {figure}: ms", milliseconds, "{:.1f}", most=most)


def _say(where: str, backlog: Backlog, ours: Drained, theirs: float, others: float) -> None:
    quiet = "" if others < QUIET_CORES else ": NOT QUIET, repeat it"
    print(
        f"{NAME}, {where}: {backlog.changes / ours.seconds:,.0f} changes/s ({ours.seconds:.1f} s, {ours.frames:,} "
        f"frames, longest {ours.longest / 1e6:.1f} MB), pg_recvlogical {backlog.changes / theirs:,.0f}; "
        f"API's process {ours.megabytes:.0f} MB above idle, {ours.cpu:.1f} CPU s; /healthz 99th percentile "
        f"{percentile(ours.health, 0.99):.1f} ms, longest {ours.health[-1]:.1f} ms; other programs took "
        f"{others:.2f} cores{quiet}",
        flush=True,
    )
