"""One backlog drained by one slot, by two and by four: the same log, in what time, and at what price.

The pipeline database is on its own server, as our own writes would be WAL of the source else, behind the backlog.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from statistics import median

from tests.benchmarks.backlog import Backlog, copied_slot, tens
from tests.benchmarks.contenders import Drain, Pipeline
from tests.benchmarks.drains import add_cpu, add_memory, say
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import PipelineServer, durable_server
from tests.benchmarks.table import Table
from tests.benchmarks.usage import WALSENDER, postmaster
from tests.fixtures.postgres import Cluster

NAME = "catchup"
SLOTS = (1, 2, 4)
THRESHOLD = "1MB"
INTERVAL = 0.2


def settings(slots: int, threshold: str = THRESHOLD) -> dict[str, str]:
    """Of a server that reads what it is behind by this many slots."""
    return {
        "PIPELINE_CATCHUP_THRESHOLD": threshold if slots > 1 else "off",
        "PIPELINE_CATCHUP_INTERVAL": str(INTERVAL),
        "PIPELINE_CATCHUP_MAX_SLOTS": str(slots),
    }


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Drain it `runs` times with each number of slots, in turn, and add the figures.

    Raises BenchmarkFailed when a log is not that of one slot.
    """
    with durable_server() as databases, tens(cluster, scale) as backlog:
        found, others = drained(NAME, SLOTS, cluster, databases, backlog, runs)
    _add(found, backlog.changes, figures)
    figures.add(NAME, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)


def drained(
    name: str,
    counts: Sequence[int],
    cluster: Cluster,
    databases: Cluster,
    backlog: Backlog,
    runs: int,
    beside: Callable[[PipelineServer], AbstractContextManager[object]] = nullcontext,
    more: dict[str, str] | None = None,
) -> tuple[dict[int, list[Drain]], list[float]]:
    """By these numbers of slots, the first of which is 1, in turn; and the cores that others took meanwhile.

    `more`: settings of the server, besides.

    Raises BenchmarkFailed when a log is not that of one slot.
    """
    found: defaultdict[int, list[Drain]] = defaultdict(list)
    others: list[float] = []
    for run in range(1, runs + 1):
        for slots in counts:
            with copied_slot(cluster, f"copy_{run}_{slots}") as slot:
                meter = OtherPrograms(postmaster(cluster), postmaster(databases))
                contender = Pipeline(settings(slots) | (more or {}), databases, digested=True, beside=beside)
                drain = contender.drain(cluster, backlog, slot)
                others.append(meter.cores())
            found[slots].append(drain)
            say(f"{name}, run {run} of {runs}: at most {_slots(slots)}", backlog, drain, others[-1])
            if drain.digest != found[1][0].digest:
                raise BenchmarkFailed(f"the log read by {_slots(slots)} is not the one read by 1 slot")
    return found, others


def _add(found: dict[int, list[Drain]], changes: int, figures: Table) -> None:
    figures.add(NAME, "logs compared with the first of 1 slot, all equal", [sum(map(len, found.values())) - 1])
    for slots, drains in found.items():
        figures.add(NAME, f"{_slots(slots)}: s to visible", [drain.seconds for drain in drains], "{:.1f}")
        figures.add(NAME, f"{_slots(slots)}: changes/s", [changes / drain.seconds for drain in drains])
        if slots > 1:
            _compare(slots, drains, found[1], figures)
    for slots, drains in found.items():
        add_cpu(NAME, changes, drains, figures, f"{_slots(slots)}: ")
        add_memory(NAME, drains, figures, f"{_slots(slots)}: ")


def _compare(slots: int, drains: list[Drain], alone: list[Drain], figures: Table) -> None:
    figures.add(NAME, f"{_slots(slots)}: read at once", [drain.slots for drain in drains])
    ratios = [one.seconds / many.seconds for many, one in zip(drains, alone, strict=True)]
    figures.add(NAME, f"{_slots(slots)} ÷ 1 slot, changes/s", ratios, "{:.2f}")
    before = median(drain.cpu.get(WALSENDER, 0.0) for drain in alone)
    added = [(drain.cpu.get(WALSENDER, 0.0) - before) / max(1, drain.slots - 1) for drain in drains]
    figures.add(NAME, f"{_slots(slots)}: CPU s that each added slot costs the source", added, "{:.1f}")


def _slots(slots: int) -> str:
    return "1 slot" if slots == 1 else f"{slots} slots"
