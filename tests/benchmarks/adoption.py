"""A backlog that is moved, and one that becomes partitions: the same log, in what time, and at what price.

The pipeline database is on its own server, so that WAL is that of the log alone.
"""

from __future__ import annotations

from collections import defaultdict

from tests.benchmarks.backlog import BACKLOGS, copied_slot
from tests.benchmarks.contenders import Drain, Pipeline
from tests.benchmarks.drains import add_memory, say
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import durable_server
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster

NAME = "adoption"
READ = ("bulk", "small")
WAYS = {"moved": "off", "adopted": "16MB"}
"""PIPELINE_ADOPT_THRESHOLD of each."""
WAL_GOAL = 0.55
"""Of what moved rows write."""


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Drain each backlog `runs` times both ways, in turn, and add the figures.

    Raises BenchmarkFailed when the logs are not the same.
    """
    others: list[float] = []
    for name in READ:
        found: defaultdict[str, list[Drain]] = defaultdict(list)
        with durable_server() as databases, BACKLOGS[name](cluster, scale) as backlog:
            for run in range(1, runs + 1):
                for way, threshold in WAYS.items():
                    given = {"PIPELINE_ADOPT_THRESHOLD": threshold, "PIPELINE_CATCHUP_THRESHOLD": "off"}
                    given["PIPELINE_SNAPSHOT"] = "never"
                    with copied_slot(cluster, f"copy_{run}_{way}") as slot:
                        meter = OtherPrograms(postmaster(cluster), postmaster(databases))
                        drain = Pipeline(given, databases, digested=True).drain(cluster, backlog, slot)
                        others.append(meter.cores())
                    found[way].append(drain)
                    say(f"{NAME}, {name}, run {run} of {runs}: {way}", backlog, drain, others[-1])
                    if drain.digest != found["moved"][0].digest:
                        raise BenchmarkFailed(f"{name}: the log that was {way} is not the one that was moved")
        _add(name, backlog.changes, found, figures)
    figures.add(NAME, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)


def _add(name: str, changes: int, found: dict[str, list[Drain]], figures: Table) -> None:
    for way, drains in found.items():
        figures.add(NAME, f"{name}, {way}: changes/s", [changes / drain.seconds for drain in drains])
        used = [sum(drain.cpu.values()) / changes * 1e6 for drain in drains]
        figures.add(NAME, f"{name}, {way}: µs of CPU a change, of all", used, "{:.1f}")
        for process in drains[0].cpu:
            each = [drain.cpu.get(process, 0.0) / changes * 1e6 for drain in drains]
            figures.add(NAME, f"{name}, {way}: µs of CPU a change, {process}", each, "{:.1f}")
        figures.add(NAME, f"{name}, {way}: bytes of WAL a change", [drain.wal / changes for drain in drains])
        add_memory(NAME, drains, figures, f"{name}, {way}: ")
    pairs = list(zip(found["adopted"], found["moved"], strict=True))
    ratios = [adopted.wal / moved.wal for adopted, moved in pairs]
    figures.add(NAME, f"{name}: WAL, adopted ÷ moved", ratios, "{:.2f}", below=WAL_GOAL)
    rates = [moved.seconds / adopted.seconds for adopted, moved in pairs]
    figures.add(NAME, f"{name}: changes/s, adopted ÷ moved", rates, "{:.2f}")
