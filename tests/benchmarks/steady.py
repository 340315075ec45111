"""The highest rate of transactions that is followed: pgbench at a rate, and probes that say how late the log is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from statistics import median

from psycopg import Connection

from tests.benchmarks import load, visible
from tests.benchmarks.contenders import visible_events
from tests.benchmarks.latency import SHARES
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import DATABASE, PipelineServer, serve
from tests.benchmarks.table import Table
from tests.benchmarks.usage import Usage, postmaster
from tests.benchmarks.visible import Reader, percentile
from tests.fixtures.postgres import Cluster

NAME = SLOT = "steady"
MIXES = {
    "simple update, 8 clients": ("--builtin", "simple-update", "--client", 8),
    "mix, 60 connections": (
        *("--builtin", "simple-update@5", "--builtin", "tpcb-like@3", "--builtin", "select-only@2"),
        *("--client", 60),
    ),
}
STEP_SECONDS, CONFIRM_SECONDS = 45.0, 180.0
FIRST = 1500.0
"""Transactions a second, where the search begins."""
STEPS, CONFIRMATIONS = 7, 3
NEAR = 1.08
"""The search ends when the lowest rate that was too high is below so many times the highest that was not."""
PROBES = 20
"""Separate rows that are committed each second, and timed."""
GROWTH, NOISE = 0.01, 0.1
"""Lag grows when, from the first third to the last, probes come later by more than this share of the time between, and
by more than this many seconds."""
KEPT = 0.97
"""What pgbench must reach of the rate that it was asked for."""


@dataclass(frozen=True)
class Step:
    """pgbench at one rate. `delays`: of the probes, in milliseconds, in the order of their commits."""

    rate: float
    reached: float
    seconds: float
    changes: int
    delays: list[float]
    cpu: dict[str, float]
    megabytes: dict[str, float]

    @property
    def behind(self) -> str:
        """What did not keep up; empty when everything did."""
        third = max(1, len(self.delays) // 3)
        grown = (median(self.delays[-third:]) - median(self.delays[:third])) / 1000
        if grown > max(NOISE, GROWTH * self.seconds * 2 / 3):
            return "the log fell behind"
        return "" if self.reached >= KEPT * self.rate else "pgbench fell behind"


class Rig:
    """A server that follows pgbench's tables, and a reader of its log."""

    def __init__(self, cluster: Cluster, server: PipelineServer, database: Connection, reader: Reader) -> None:
        self._cluster, self._server, self._database, self._reader = cluster, server, database, reader
        self._written = visible.WARM_UP

    def run(self, arguments: tuple[object, ...], rate: float, seconds: float) -> Step:
        """So long at that rate, and then until everything is visible."""
        before = visible_events(self._database)
        with Usage(self._server) as usage, load.running(self._cluster, arguments, rate, seconds) as writer:
            committed = visible.write(self._cluster, self._written, round(PROBES * seconds), PROBES)
            _, reached = load.transactions(writer, seconds)
            last = visible.write(self._cluster, max(committed), 1, PROBES)
            self._reader.wait_for([*committed, *last], seconds + visible.PATIENCE)
            cpu = usage.cpu()
        self._written = max(last)
        changes = visible_events(self._database) - before
        delays = [(self._reader.seen[key] - at) * 1000 for key, at in committed.items()]
        return Step(rate, reached, seconds, changes, delays, cpu, usage.megabytes())


def report(cluster: Cluster, figures: Table, scale: float) -> None:
    """Search with each mix and confirm what was found; once. A small scale makes the steps shorter."""
    step, confirm = (max(3.0, seconds * min(1.0, scale)) for seconds in (STEP_SECONDS, CONFIRM_SECONDS))
    for mix, arguments in MIXES.items():
        with load.tables(cluster, min(1.0, scale)) as source, serve(cluster, SLOT) as server:
            server.wait_active(source)
            meter = OtherPrograms(postmaster(cluster), server.process.pid)
            with cluster.connect(DATABASE) as database, visible.reader(server, source) as reader:
                rig = Rig(cluster, server, database, reader)
                found = _search(lambda rate, seconds: _told(mix, rig.run(arguments, rate, seconds)), step, confirm)  # noqa: B023
            server.require_steady()
            others = meter.cores()
        _add(mix, *found, figures)
        figures.add(NAME, f"{mix}: cores that other programs took meanwhile", [others], "{:.2f}", below=QUIET_CORES)


def _search(run: Callable[[float, float], Step], step_seconds: float, confirm_seconds: float) -> tuple[Step, str]:
    """The highest rate that held to the end, confirmed, and what gave way above it."""
    rate, low, high, gave_way = FIRST, 0.0, 0.0, "nothing within the search"
    for _ in range(STEPS):
        step = run(rate, step_seconds)
        if step.behind:
            high, gave_way = rate, step.behind
        else:
            low = rate
        if low and high and high / low < NEAR:
            break
        rate = round(sqrt(low * high) if low and high else rate * 1.5 if low else rate / 2)
    rate = low or rate
    for _ in range(CONFIRMATIONS):
        confirmed = run(rate, confirm_seconds)
        if not confirmed.behind:
            break
        rate, gave_way = round(rate / NEAR), confirmed.behind
    return confirmed, gave_way


def _add(mix: str, found: Step, gave_way: str, figures: Table) -> None:
    if found.behind:
        figures.note(NAME, f"{mix}: highest rate", f"none confirmed: {found.behind} at {found.rate:,.0f}/s")
        return
    figures.add(NAME, f"{mix}: highest rate at which lag does not grow: transactions/s", [found.reached])
    figures.add(NAME, f"{mix}: the same in changes/s", [found.changes / found.seconds])
    figures.note(NAME, f"{mix}: what gave way above it", gave_way)
    ordered = sorted(found.delays)
    for figure, share in SHARES:
        figures.add(NAME, f"{mix}: commit to visible at it, {figure}: ms", [percentile(ordered, share)], "{:.1f}")
    for process, seconds in found.cpu.items():
        figures.add(NAME, f"{mix}: {process}: CPU s per 1 M changes", [seconds / found.changes * 1e6], "{:.1f}")
    for process, megabytes in found.megabytes.items():
        figures.add(NAME, f"{mix}: {process}: peak MB", [megabytes])


def _told(mix: str, step: Step) -> Step:
    ordered = sorted(step.delays)
    shown = ", ".join(f"{figure} {percentile(ordered, share):.0f} ms" for figure, share in SHARES)
    print(
        f"{NAME}, {mix}: {step.rate:,.0f}/s for {step.seconds:.0f} s: {step.reached:,.0f}/s reached, "
        f"{step.changes / step.seconds:,.0f} changes/s; commit to visible {shown}: {step.behind or 'followed'}",
        flush=True,
    )
    return step
