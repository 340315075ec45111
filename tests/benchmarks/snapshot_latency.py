"""From commit to visible while a large table is read beside the stream, against the same without."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.benchmarks import visible
from tests.benchmarks.backlog import SOURCE_DATABASE
from tests.benchmarks.latency import SHARES
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.rows_before import backfill_state, drop_slot, filled, wait_until_read
from tests.benchmarks.server import DATABASE, serve
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.benchmarks.visible import Reader, percentile
from tests.fixtures.postgres import Cluster

NAME, SLOT = "snapshot-latency", "snapshot_latency"
ROWS = 2_000_000
READ = "bench_read"
"""The table that is read; the writers have bench_rows to themselves."""
WRITERS, PACE = 4, 200
"""Commits a second, of all writers together."""
SECONDS = 20.0
"""How long commits are timed without a backfill; with one, for as long as it takes."""
MOST = 3.0
"""How many times the median without is the median with it, at most."""


@dataclass(frozen=True)
class Found:
    """Milliseconds from commit to visible, sorted, and how many rows a second were read meanwhile."""

    alone: list[float]
    beside: list[float]
    rows_per_second: float


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Measure both in turn, `runs` times, and add the figures."""
    rows = max(20_000, round(ROWS * scale))
    found: list[Found] = []
    others: list[float] = []
    with filled(cluster, rows, READ):
        for run in range(1, runs + 1):
            meter = OtherPrograms(postmaster(cluster))
            found.append(_measure(cluster, rows, SECONDS * min(1.0, max(0.2, scale))))
            others.append(meter.cores())
            _say(f"{NAME}, run {run} of {runs}", found[-1], others[-1])
    for figure, share in SHARES:
        without = [percentile(each.alone, share) for each in found]
        figures.add(NAME, f"commit to visible without a backfill, {figure}: ms", without, "{:.1f}")
        beside = [percentile(each.beside, share) for each in found]
        figures.add(NAME, f"commit to visible beside one, {figure}: ms", beside, "{:.1f}")
    ratios = [percentile(each.beside, 0.5) / percentile(each.alone, 0.5) for each in found]
    figures.add(NAME, "beside a backfill ÷ without, median", ratios, "{:.2f}", most=MOST)
    figures.add(NAME, "rows/s of the backfill meanwhile", [each.rows_per_second for each in found])
    figures.add(NAME, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)


def _measure(cluster: Cluster, rows: int, seconds: float) -> Found:
    with (
        cluster.connect(SOURCE_DATABASE) as source,
        serve(cluster, SLOT, settings={"PIPELINE_SNAPSHOT": "never"}) as server,
        cluster.connect(DATABASE) as database,
    ):
        source.execute("truncate bench_rows")
        server.wait_active(source)
        with visible.reader(server, source) as reader:
            with visible.writing(cluster, visible.WARM_UP, WRITERS, PACE) as written:
                time.sleep(seconds)
            alone = _delays(reader, written)
            server.run("backfill", "start", f"public.{READ}")
            while backfill_state(database) == "waiting":
                time.sleep(0.02)
            with visible.writing(cluster, max(written), WRITERS, PACE) as written:
                took = wait_until_read(server, database)
            beside = _delays(reader, written)
        server.require_steady()
    drop_slot(cluster, SLOT)
    return Found(alone, beside, rows / took)


def _delays(reader: Reader, committed: dict[int, float]) -> list[float]:
    reader.wait_for(committed)
    return sorted((reader.seen[number] - at) * 1000 for number, at in committed.items())


def _say(where: str, found: Found, others: float) -> None:
    shown = [
        ", ".join(f"{figure} {percentile(each, share):.1f} ms" for figure, share in SHARES) + f" of {len(each):,}"
        for each in (found.alone, found.beside)
    ]
    quiet = "" if others < QUIET_CORES else ": NOT QUIET, repeat it"
    print(
        f"{where}: {shown[0]}; beside a backfill of {found.rows_per_second:,.0f} rows/s: {shown[1]}; "
        f"other programs took {others:.2f} cores{quiet}",
        flush=True,
    )
