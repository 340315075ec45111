"""The parts of the benchmarks by name, and which of them run together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import (
    adoption,
    burst,
    catchup,
    clients,
    content,
    drains,
    exports,
    fold,
    follower_catchup,
    follower_latency,
    follower_size,
    follower_slot,
    held,
    lake_age,
    lake_runs,
    lake_year,
    latency,
    records,
    rpc_latency,
    rpc_start,
    rpc_throughput,
    sequin_wire,
    session_drain,
    session_follow,
    session_latency,
    slots,
    small_batches,
    snapshot,
    snapshot_latency,
    steady,
    stream_latency,
    stream_throughput,
)
from tests.benchmarks.backlog import BACKLOGS
from tests.benchmarks.table import Table
from tests.fixtures.postgres import Cluster


@dataclass(frozen=True)
class Bench:
    """What every part is given. `scale`: the share of the full sizes; `only`: contenders, all when it is empty.

    `classes` is a folder for compiled Java, `docs` the one for plots, None when these figures are not kept.
    """

    cluster: Cluster
    figures: Table
    scale: float
    runs: int
    only: Sequence[str]
    classes: Path
    docs: Path | None


Part = Callable[[Bench], None]


def _drained(name: str) -> Part:
    return lambda b: drains.report(name, b.cluster, b.scale, b.runs, b.only, b.classes, b.figures)


def _lake_age(bench: Bench) -> None:
    lake_age.report(bench.cluster, bench.figures, bench.scale)
    lake_year.report(bench.cluster, bench.figures, bench.scale, bench.docs)


PARTS: dict[str, Part] = {
    **{name: _drained(name) for name in BACKLOGS},
    catchup.NAME: lambda b: catchup.report(b.cluster, b.figures, b.scale, b.runs),
    slots.NAME: lambda b: slots.report(b.cluster, b.figures, b.scale, b.runs, b.docs),
    adoption.NAME: lambda b: adoption.report(b.cluster, b.figures, b.scale, b.runs),
    burst.NAME: lambda b: burst.report(b.cluster, b.figures, b.scale, b.docs),
    latency.NAME: lambda b: latency.report(b.cluster, b.figures, b.scale),
    steady.NAME: lambda b: steady.report(b.cluster, b.figures, b.scale),
    small_batches.NAME: lambda b: small_batches.report(b.cluster, b.figures, b.scale, b.runs),
    held.NAME: lambda b: held.report(b.cluster, b.figures, b.scale),
    lake_runs.NAME: lambda b: lake_runs.report(b.cluster, b.figures, b.scale, b.runs),
    "lake": lambda b: exports.report(b.cluster, b.figures, b.scale, b.runs),
    lake_age.NAME: _lake_age,
    stream_latency.NAME: lambda b: stream_latency.report(b.cluster, b.figures, b.scale, b.runs, b.only, b.classes),
    stream_throughput.NAME: lambda b: stream_throughput.report(b.cluster, b.figures, b.scale, b.runs),
    records.NAME: lambda b: records.report(b.cluster, b.figures, b.scale, b.runs),
    sequin_wire.NAME: lambda b: sequin_wire.report(b.cluster, b.figures, b.scale, b.runs),
    clients.NAME: lambda b: clients.report(b.cluster, b.figures, b.scale),
    fold.NAME: lambda b: fold.report(b.cluster, b.figures, b.scale, b.runs),
    snapshot.NAME: lambda b: snapshot.report(b.cluster, b.figures, b.scale, b.runs, b.only, b.classes),
    snapshot_latency.NAME: lambda b: snapshot_latency.report(b.cluster, b.figures, b.scale, b.runs),
    content.NAME: lambda b: content.report(b.cluster, b.figures, b.scale, b.runs),
    session_latency.NAME: lambda b: session_latency.report(b.cluster, b.figures, b.scale, b.runs, b.classes),
    session_drain.NAME: lambda b: session_drain.report(b.cluster, b.figures, b.scale, b.runs),
    rpc_latency.NAME: lambda b: rpc_latency.report(b.cluster, b.figures, b.scale, b.runs),
    rpc_start.NAME: lambda b: rpc_start.report(b.cluster, b.figures, b.runs),
    rpc_throughput.NAME: lambda b: rpc_throughput.report(b.cluster, b.figures, b.scale, b.runs),
    follower_catchup.NAME: lambda b: follower_catchup.report(b.cluster, b.figures, b.scale, b.runs),
    follower_slot.NAME: lambda b: follower_slot.report(b.cluster, b.figures, b.scale),
    follower_latency.NAME: lambda b: follower_latency.report(b.cluster, b.figures, b.scale, b.runs),
    follower_size.NAME: lambda b: follower_size.report(b.cluster, b.figures, b.scale),
    session_follow.NAME: lambda b: session_follow.report(b.cluster, b.figures, b.scale, b.runs),
}
DEFAULT = [*BACKLOGS, catchup.NAME, burst.NAME, latency.NAME]
"""What fits into 25 minutes together."""
GROUPS = {
    "followers": [follower_catchup.NAME, follower_slot.NAME, follower_latency.NAME, follower_size.NAME],
    "consumers": [stream_latency.NAME, stream_throughput.NAME, records.NAME, sequin_wire.NAME, clients.NAME, fold.NAME],
    "grpc": [rpc_latency.NAME, rpc_throughput.NAME, rpc_start.NAME],
    "sessions": [session_latency.NAME, session_drain.NAME, session_follow.NAME],
    "snapshot": [snapshot.NAME, snapshot_latency.NAME, content.NAME],
}


def named(asked: Sequence[str] | None) -> list[str]:
    """The parts that were asked for, by their own names or by a group's."""
    return [part for name in asked or DEFAULT for part in GROUPS.get(name, [name])]
