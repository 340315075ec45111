"""One backlog drained by every contender in turn, several times, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tests.benchmarks.backlog import BACKLOGS, Backlog, copied_slot
from tests.benchmarks.contenders import Drain, Pipeline
from tests.benchmarks.errors import BenchmarkFailed, CannotRun
from tests.benchmarks.peers import Debezium, Decoding, RecvLogical
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.table import Table
from tests.benchmarks.usage import WORKER, postmaster
from tests.fixtures.postgres import Cluster

GOALS = {"bulk": 2.3, "small": 3.7, "wide": 3.0}
"""How many times Debezium's rate, at least."""
OF_RECVLOGICAL = {"bulk": 0.65}
"""Likewise how much of the rate of pg_recvlogical."""
WORKER_MEGABYTES = 150


class Contender(Protocol):
    """Who can drain a slot."""

    name: str

    def drain(self, cluster: Cluster, backlog: Backlog, slot: str) -> Drain:
        """Read the whole backlog from `slot`, a copy made for this call. Raises BenchmarkFailed."""


CONTENDERS: dict[str, Callable[[Path], Contender]] = {
    "pipeline": lambda _: Pipeline(),
    "pg_recvlogical": lambda _: RecvLogical(),
    "decoding": lambda _: Decoding(),
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
                    say(f"{name}, run {run} of {runs}: {contender.name}", backlog, results[contender][-1], others[-1])
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
        if name == "wide":
            figures.add(
                name, f"{contender.name}: MB/s", [backlog.megabytes / drain.seconds for drain in drains], "{:.1f}"
            )
    ours = next((drains for contender, drains in results.items() if isinstance(contender, Pipeline)), None)
    for contender, drains in results.items():
        if ours and isinstance(contender, Debezium):
            _compare(name, backlog, ours, drains, figures)
        elif ours and drains is not ours:
            ratios = [theirs.seconds / mine.seconds for mine, theirs in zip(ours, drains, strict=True)]
            least = OF_RECVLOGICAL.get(name) if isinstance(contender, RecvLogical) else None
            figures.add(name, f"pipeline ÷ {contender.name.split(',')[0]}", ratios, "{:.2f}", least=least)
    for drains in results.values():
        add_memory(name, drains, figures)
    if ours:
        figures.add(name, "pipeline: share of changes adopted", [drain.adopted for drain in ours], "{:.2f}")
        figures.add(name, "pipeline: bytes of WAL written a change", [drain.wal / backlog.changes for drain in ours])
        add_cpu(name, backlog.changes, ours, figures)


def _compare(name: str, backlog: Backlog, ours: list[Drain], debezium: list[Drain], figures: Table) -> None:
    pairs = list(zip(ours, debezium, strict=True))
    ratios = [theirs.seconds / mine.seconds for mine, theirs in pairs]
    least = GOALS.get(name)
    figures.add(name, "pipeline ÷ Debezium, its clock from its first batch", ratios, "{:.2f}", least=least)
    same = [theirs.from_active / mine.seconds for mine, theirs in pairs if theirs.from_active is not None]
    figures.add(name, "pipeline ÷ Debezium, both clocks from the slot being read", same, "{:.2f}")
    warm = [theirs.warm for theirs in debezium if theirs.warm is not None]
    figures.add(name, "Debezium over its second half, JVM warm: changes/s", warm)
    against_warm = [backlog.changes / mine.seconds / rate for (mine, _), rate in zip(pairs, warm, strict=True)]
    figures.add(name, "pipeline ÷ Debezium over its second half", against_warm, "{:.2f}")


def add_memory(part: str, drains: Sequence[Drain], figures: Table, where: str = "") -> None:
    """Peak memory of each process of these drains. `where`: what stands before each figure."""
    for process in drains[0].megabytes:
        limit = WORKER_MEGABYTES if process == WORKER else None
        figures.add(part, f"{where}{process}: peak MB", [d.megabytes.get(process, 0.0) for d in drains], below=limit)


def add_cpu(part: str, changes: int, drains: Sequence[Drain], figures: Table, where: str = "") -> None:
    """CPU seconds of each process for a million changes."""
    for process in drains[0].cpu:
        per_million = [drain.cpu.get(process, 0.0) / changes * 1e6 for drain in drains]
        figures.add(part, f"{where}{process}: CPU s per 1 M changes", per_million, "{:.1f}")


def say(where: str, backlog: Backlog, drain: Drain, others: float) -> None:
    """One line about one drain, and how quiet the machine was."""
    parts = [f"{backlog.changes / drain.seconds:,.0f} changes/s ({drain.seconds:.2f} s)"]
    if drain.slots > 1:
        parts.append(f"{drain.slots} slots read at once")
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
