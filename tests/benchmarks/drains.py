"""One backlog drained by every contender in turn, several times, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tests.benchmarks.backlog import BACKLOGS, Backlog, copied_slot
from tests.benchmarks.contenders import Debezium, Drain, Pipeline, RecvLogical
from tests.benchmarks.errors import BenchmarkFailed, CannotRun
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster

GOALS = {"bulk": 1.3, "small": 2.5}
"""How many times Debezium's rate, at least."""
WORKER_MEGABYTES = 150


class Contender(Protocol):
    """Who can drain a slot."""

    name: str

    def drain(self, cluster: Cluster, backlog: Backlog, slot: str) -> Drain:
        """Read the whole backlog from `slot`, a copy made for this call. Raises BenchmarkFailed."""


CONTENDERS: dict[str, Callable[[Path], Contender]] = {
    "pipeline": lambda _: Pipeline(),
    "pg_recvlogical": lambda _: RecvLogical(),
    "debezium": Debezium,
}


def report(
    name: str, cluster: Cluster, scale: float, runs: int, only: Sequence[str], classes: Path, figures: Table
) -> None:
    """Drain the backlog `name` `runs` times by each contender (of `only`, if any), in turn, and add the figures.

    A contender that fails is out; the others go on, and BenchmarkFailed is raised at the end.
    """
    contenders = _contenders(name, only, classes, figures)
    results: dict[Contender, list[Drain]] = {contender: [] for contender in contenders}
    failures: dict[Contender, str] = {}
    others: list[float] = []
    with BACKLOGS[name](cluster, scale) as backlog:
        for run in range(1, runs + 1):
            for contender in (each for each in contenders if each not in failures):
                try:
                    with copied_slot(cluster, f"copy_{run}") as slot:
                        meter = OtherPrograms(postmaster(cluster))
                        results[contender].append(contender.drain(cluster, backlog, slot))
                        others.append(meter.cores())
                    _say(f"{name}, run {run} of {runs}: {contender.name}", backlog, results[contender][-1], others[-1])
                except BenchmarkFailed as error:
                    failures[contender] = f"{contender.name}, run {run}: {error}"
    _add_figures(name, backlog, {each: results[each] for each in contenders if each not in failures}, figures)
    if others:
        figures.add(name, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)
    if failures:
        raise BenchmarkFailed(f"{name}: {'; '.join(failures.values())}")


def _contenders(name: str, only: Sequence[str], classes: Path, figures: Table) -> list[Contender]:
    made: list[Contender] = []
    for key, make in CONTENDERS.items():
        try:
            if not only or key in only:
                made.append(make(classes))
        except CannotRun as reason:
            print(f"{name}: {reason}", flush=True)
            figures.note(name, key, "left out")
    return made


def _add_figures(name: str, backlog: Backlog, results: dict[Contender, list[Drain]], figures: Table) -> None:
    for contender, drains in results.items():
        figures.add(name, f"{contender.name}: changes/s", [backlog.changes / drain.seconds for drain in drains])
    ours = next((drains for contender, drains in results.items() if isinstance(contender, Pipeline)), None)
    theirs = next((drains for contender, drains in results.items() if isinstance(contender, Debezium)), None)
    if ours and theirs:
        _compare(name, backlog, ours, theirs, figures)
    if ours:
        _usage(name, backlog, ours, figures)


def _compare(name: str, backlog: Backlog, ours: list[Drain], debezium: list[Drain], figures: Table) -> None:
    pairs = list(zip(ours, debezium, strict=True))
    ratios = [theirs.seconds / mine.seconds for mine, theirs in pairs]
    figures.add(name, "pipeline ÷ Debezium, its clock from its first batch", ratios, "{:.2f}", least=GOALS[name])
    same = [theirs.from_active / mine.seconds for mine, theirs in pairs if theirs.from_active is not None]
    figures.add(name, "pipeline ÷ Debezium, both clocks from the slot being read", same, "{:.2f}")
    warm = [theirs.warm for theirs in debezium if theirs.warm is not None]
    figures.add(name, "Debezium over its second half, JVM warm: changes/s", warm)
    against_warm = [backlog.changes / mine.seconds / rate for (mine, _), rate in zip(pairs, warm, strict=True)]
    figures.add(name, "pipeline ÷ Debezium over its second half", against_warm, "{:.2f}")


def _usage(name: str, backlog: Backlog, drains: list[Drain], figures: Table) -> None:
    figures.add(name, "worker: peak MB", [d.megabytes["worker"] for d in drains], below=WORKER_MEGABYTES)
    figures.add(name, "shuffler: peak MB", [d.megabytes["shuffler"] for d in drains])
    for process in drains[0].cpu:
        per_million = [drain.cpu.get(process, 0.0) / backlog.changes * 1e6 for drain in drains]
        figures.add(name, f"{process}: CPU s per 1 M changes", per_million, "{:.1f}")


def _say(where: str, backlog: Backlog, drain: Drain, others: float) -> None:
    parts = [f"{backlog.changes / drain.seconds:,.0f} changes/s ({drain.seconds:.2f} s)"]
    if drain.from_active is not None and drain.from_active != drain.seconds:
        parts.append(f"{drain.from_active:.2f} s from the slot being read")
    if drain.warm is not None:
        parts.append(f"{drain.warm:,.0f}/s over the second half")
    if drain.megabytes:
        parts.append("peak " + ", ".join(f"{who} {size:.0f} MB" for who, size in drain.megabytes.items()))
    if drain.cpu:
        parts.append("CPU s: " + ", ".join(f"{who} {seconds:.1f}" for who, seconds in drain.cpu.items()))
    quiet = "" if others < QUIET_CORES else ": NOT QUIET, repeat it"
    print(f"{where}: {'; '.join(parts)}; other programs took {others:.2f} cores{quiet}", flush=True)
