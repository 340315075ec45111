"""What a change costs where transactions are small, and when it comes: staged first, and written at once."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from tests.benchmarks import stream_latency, visible
from tests.benchmarks.backlog import table
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import serve
from tests.benchmarks.table import Table
from tests.benchmarks.usage import REST_OF_POSTGRES, Usage, postmaster
from tests.fixtures.postgres import Cluster

NAME, SLOT = "small-batches", "small_batches"
WAYS = ("staged", "at_once")
RATES = {200: 1, 1000: 2, 2500: 4}
"""Transactions of one row a second, and by how many sessions."""
SECONDS, WARM_UP_SECONDS = 20.0, 2.0
GOAL = 0.5
"""Of what a staged change costs."""
STREAMED = {100: (1000, 300), 1000: (6000, 4000)}
"""Commits a second that a WebSocket client receives: how many count, and how many come before them."""
LONGEST = {100: 5.0, 1000: 12.0}
"""Milliseconds from commit to received, median."""


@dataclass(frozen=True)
class Cost:
    """Of one run: µs of CPU a change, by process, without what Postgres does for the writers."""

    reached: float
    cpu: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.cpu.values())


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Measure both ways in turn and add the figures."""
    seconds = max(3.0, SECONDS * min(1.0, scale))
    found: defaultdict[tuple[int, str], list[Cost]] = defaultdict(list)
    meter = OtherPrograms(postmaster(cluster))
    for run in range(1, runs + 1):
        for rate in RATES:
            for way in WAYS:
                found[rate, way].append(cost := measure(cluster, way, rate, seconds))
                print(f"{NAME}, run {run} of {runs}: {way} at {cost.reached:,.0f}/s: {cost.total:,.0f} µs", flush=True)
    others = meter.cores()
    for rate in RATES:
        _add(rate, {way: found[rate, way] for way in WAYS}, figures)
    figures.add(NAME, "cores that other programs took meanwhile", [others], "{:.2f}", below=QUIET_CORES)
    for rate in STREAMED:
        _stream(cluster, figures, rate, scale, runs)


def measure(cluster: Cluster, way: str, rate: int, seconds: float) -> Cost:
    """Write single-row transactions at that rate for that time, until all of them are visible."""
    with table(cluster) as source, serve(cluster, SLOT, settings={"PIPELINE_SMALL_BATCHES": way}) as server:
        server.wait_active(source)
        with visible.reader(server, source) as reader:
            with visible.writing(cluster, visible.WARM_UP, RATES[rate], rate) as warm:
                time.sleep(WARM_UP_SECONDS)
            reader.wait_for(warm)
            with Usage(server) as usage:
                with visible.writing(cluster, max(warm), RATES[rate], rate) as committed:
                    time.sleep(seconds)
                reader.wait_for(committed)
                cpu = usage.cpu()
        server.require_steady()
    cpu.pop(REST_OF_POSTGRES)
    return Cost(len(committed) / seconds, {name: each / len(committed) * 1e6 for name, each in cpu.items()})


def _add(rate: int, costs: dict[str, list[Cost]], figures: Table) -> None:
    for way, runs in costs.items():
        what = f"{rate:,}/s, {way}"
        figures.add(NAME, f"{what}: changes/s", [each.reached for each in runs])
        figures.add(NAME, f"{what}: CPU µs a change", [each.total for each in runs])
        for process in runs[0].cpu:
            values = [each.cpu.get(process, 0.0) for each in runs]
            figures.add(NAME, f"{what}: {process}: CPU µs a change", values)
    staged, at_once = (costs[way] for way in WAYS)
    ratios = [one.total / other.total for one, other in zip(at_once, staged, strict=True)]
    figures.add(NAME, f"{rate:,}/s: CPU at once ÷ staged", ratios, "{:.2f}", most=GOAL)


def _stream(cluster: Cluster, figures: Table, rate: int, scale: float, runs: int) -> None:
    commits, warm_up = (max(200, round(count * min(1.0, scale))) for count in STREAMED[rate])
    contenders = {
        f"WebSocket at {rate:,}/s, {way}": partial(
            stream_latency.websocket, warm_up + commits, warm_up=warm_up, settings={"PIPELINE_SMALL_BATCHES": way}
        )
        for way in WAYS
    }
    found = stream_latency.in_turn(NAME, contenders, cluster, figures, runs, commits, pace=rate, warm_up=warm_up)
    staged, at_once = (found[name] for name in contenders)
    figures.add(
        NAME, f"WebSocket at {rate:,}/s: at once ÷ staged, median", stream_latency.ratios(at_once, staged), "{:.2f}"
    )
    _judge(rate, [median(each.from_commit) for each in at_once], figures)


def _judge(rate: int, medians: Sequence[float], figures: Table) -> None:
    figures.add(NAME, f"WebSocket at {rate:,}/s, at_once: median: ms", medians, "{:.1f}", most=LONGEST[rate])
