"""What a slot more adds where there are cores for it: one backlog by 1, 2, 4 and 8 slots on many slow cores.

Each role of the server and each backend of both Postgres is held to a twentieth of a core, so that two cores are forty.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tests.benchmarks import catchup, plot, slow_cores
from tests.benchmarks.backlog import tens
from tests.benchmarks.contenders import Drain
from tests.benchmarks.drains import add_cpu
from tests.benchmarks.processes import QUIET_CORES, Family
from tests.benchmarks.server import PipelineServer, durable_server
from tests.benchmarks.slow_cores import SlowCores
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster
from tests.fixtures.processes import title

NAME, PLOT = "slots", "catch-up-slots.svg"
SLOTS = (1, 2, 4, 8)
ADOPTING = {"PIPELINE_ADOPT_THRESHOLD": "4MB"}
"""Else one backend moves what all of them have read. So little that an eighth of this backlog is worth a partition."""
SHARE = 1 / 20
SIZE = 0.5
"""Of the backlog that `catchup` drains on whole cores."""


def report(cluster: Cluster, figures: Table, scale: float, runs: int, docs: Path | None) -> None:
    """Drain it `runs` times with each number of slots, in turn; adds the figures, and draws them into `docs`, if given.

    Raises CannotRun where processes cannot be held to a share of a core, BenchmarkFailed when a log is another's.
    """
    slow_cores.require()
    with durable_server() as databases, tens(cluster, scale * SIZE) as backlog:
        found, others = catchup.drained(NAME, SLOTS, cluster, databases, backlog, runs, slowed, ADOPTING)
    _add(found, backlog.changes, figures)
    figures.add(NAME, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)
    if docs:
        (docs / PLOT).write_text(_plot(found))


@contextmanager
def slowed(server: PipelineServer) -> Iterator[None]:
    """Each role of the server and each process of its databases has a twentieth of a core.

    Those that only start others, and wait, are left alone: else the server would need minutes to begin.
    """
    postgres = [Family(postmaster(cluster)) for cluster in (server.cluster, server.databases)]
    roles = Family(server.process.pid)

    def members() -> set[int]:
        backends = {pid for family in postgres for pid in family.members()} - {family.head for family in postgres}
        return backends | {pid for pid in roles.members() if title(pid).startswith("pipeline: ")}

    with SlowCores(members, SHARE):
        yield


def _add(found: dict[int, list[Drain]], changes: int, figures: Table) -> None:
    figures.add(NAME, "logs compared with the first of one slot, all equal", [sum(map(len, found.values())) - 1])
    for slots, drains in found.items():
        figures.add(NAME, f"at most {slots}: changes/s", [changes / drain.seconds for drain in drains])
        figures.add(NAME, f"at most {slots}: share adopted", [drain.adopted for drain in drains], "{:.2f}")
        if slots > 1:
            figures.add(NAME, f"at most {slots}: read at once", [drain.slots for drain in drains])
            figures.add(NAME, f"at most {slots} ÷ 1, changes/s", _times(drains, found[1]), "{:.2f}")
    for slots, drains in found.items():
        add_cpu(NAME, changes, drains, figures, f"at most {slots}: ")


def _times(drains: list[Drain], alone: list[Drain]) -> list[float]:
    return [one.seconds / many.seconds for many, one in zip(drains, alone, strict=True)]


def _plot(found: dict[int, list[Drain]]) -> str:
    """How many times the rate of one slot, and how much more CPU a change costs."""
    rate = [(float(slots), median(_times(drains, found[1]))) for slots, drains in found.items()]
    before = median([sum(drain.cpu.values()) for drain in found[1]])
    cost = [(float(slots), median([sum(d.cpu.values()) / before for d in drains])) for slots, drains in found.items()]
    series = {"changes a second": rate, "CPU a change": cost}
    return plot.lines("A catch-up on many slow cores", series, "slots", "times that of one slot")
