"""From commit to visible on an idle server: 200 single-row transactions a second, each timed."""

from __future__ import annotations

from dataclasses import dataclass

from tests.benchmarks import visible
from tests.benchmarks.backlog import table
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import serve
from tests.benchmarks.table import Table
from tests.benchmarks.usage import Usage, postmaster
from tests.benchmarks.visible import percentile
from tests.fixtures.postgres import Cluster

NAME = SLOT = "latency"
PACE = 200
"""Commits a second."""
SECONDS = 20.0
SHARES = (("median", 0.5), ("99th percentile", 0.99), ("longest", 1.0))


@dataclass(frozen=True)
class Latency:
    """`milliseconds`: from COMMIT having returned to the row seen, one a commit, sorted."""

    commits_per_second: float
    other_cores: float
    milliseconds: list[float]
    megabytes: dict[str, float]


def measure(cluster: Cluster, seconds: float = SECONDS) -> Latency:
    """Single-row transactions at PACE on an idle server, each timed at the writer and at the reader."""
    with table(cluster) as source, serve(cluster, SLOT) as server:
        server.wait_active(source)
        with visible.reader(server, source) as reader, Usage(server) as usage:
            meter = OtherPrograms(postmaster(cluster), server.process.pid)
            committed = visible.write(cluster, visible.WARM_UP, round(PACE * seconds), PACE)
            reader.wait_for(committed)
            others = meter.cores()
            server.require_steady()
    spent = max(committed.values()) - min(committed.values())
    delays = sorted((reader.seen[key] - at) * 1000 for key, at in committed.items())
    return Latency((len(committed) - 1) / spent, others, delays, usage.megabytes())


def report(cluster: Cluster, figures: Table, scale: float) -> None:
    """Measure once and add the figures."""
    found = measure(cluster, SECONDS * min(1.0, max(0.1, scale)))
    shown = ", ".join(f"{figure} {percentile(found.milliseconds, share):.1f} ms" for figure, share in SHARES)
    quiet = "" if found.other_cores < QUIET_CORES else ": NOT QUIET, repeat it"
    print(
        f"{NAME}: {len(found.milliseconds):,} commits at {found.commits_per_second:.0f}/s: {shown}; "
        f"other programs took {found.other_cores:.2f} cores{quiet}",
        flush=True,
    )
    figures.add(NAME, "commits/s", [found.commits_per_second])
    for figure, share in SHARES:
        figures.add(NAME, f"commit to visible, {figure}: ms", [percentile(found.milliseconds, share)], "{:.1f}")
    for process, megabytes in found.megabytes.items():
        figures.add(NAME, f"{process}: peak MB", [megabytes])
    figures.add(NAME, "cores that other programs took meanwhile", [found.other_cores], "{:.2f}", below=QUIET_CORES)
