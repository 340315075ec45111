"""What sessions that follow cost the main road: commit to visible in sequin_events without them, and with some."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from psycopg import Connection

from tests.benchmarks import processes, programs, session_wire, visible
from tests.benchmarks.backlog import table
from tests.benchmarks.latency import SHARES
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.server import PipelineServer, serve
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.benchmarks.visible import percentile
from tests.fixtures.postgres import Cluster

NAME, SLOT = "session-follow", "followed"
PACE, SECONDS, WARM = 300, 20.0, 3.0
WRITERS = 4
SESSIONS, SLOWER = 2, 1.3
"""Sessions that follow, and the goal: commit to visible takes at most this many times what it takes without."""
MANY, FAST = 4, 1000
"""Sessions and commits a second of the figures that have no goal."""


@dataclass(frozen=True)
class Followed:
    """Milliseconds from commit to visible, sorted; CPU of each session's walsender and of the API's process, cores."""

    milliseconds: list[float]
    commits_per_second: float
    walsenders: list[float]
    api: float


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Without sessions and with two in turn, `runs` times; then four at a thousand commits a second, once."""
    seconds = SECONDS * min(1.0, max(0.1, scale))
    found: dict[int, list[Followed]] = {0: [], SESSIONS: []}
    others: list[float] = []
    for run in range(1, runs + 1):
        for sessions, measured in found.items():
            meter = OtherPrograms(postmaster(cluster))
            measured.append(_follow(cluster, sessions, PACE, seconds))
            others.append(meter.cores())
            _say(f"run {run} of {runs}", sessions, measured[-1], others[-1])
    for sessions, measured in found.items():
        _add(f"{sessions} sessions, {PACE}/s" if sessions else f"no session, {PACE}/s", measured, figures)
    ratios = [
        percentile(mine.milliseconds, 0.5) / percentile(alone.milliseconds, 0.5)
        for alone, mine in zip(found[0], found[SESSIONS], strict=True)
    ]
    figures.add(NAME, f"commit to visible, {SESSIONS} sessions ÷ none, median", ratios, "{:.2f}", most=SLOWER)
    meter = OtherPrograms(postmaster(cluster))
    many = _follow(cluster, MANY, FAST, seconds)
    others.append(meter.cores())
    _say("once", MANY, many, others[-1])
    _add(f"{MANY} sessions, {FAST}/s", [many], figures)
    figures.add(NAME, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)


def _follow(cluster: Cluster, sessions: int, pace: float, seconds: float) -> Followed:
    with table(cluster) as source, serve(cluster, SLOT, settings=session_wire.SETTINGS) as server:
        server.wait_active(source)
        with _followers(server, sessions), visible.reader(server, source) as reader:
            with visible.writing(cluster, visible.WARM_UP, WRITERS, pace) as committed:
                time.sleep(WARM)
                first = max(committed, default=0)
                pids, role = _walsenders(source), server.role("api")
                before = [processes.cpu_seconds(pid) for pid in (*pids, role)]
                time.sleep(seconds)
                spent = [processes.cpu_seconds(pid) - at for pid, at in zip((*pids, role), before, strict=True)]
            counted = {key: at for key, at in committed.items() if key > first}
            reader.wait_for(counted)
        server.require_steady()
    delays = sorted((reader.seen[key] - at) * 1000 for key, at in counted.items())
    *theirs, ours = (each / seconds for each in spent)
    return Followed(delays, len(counted) / seconds, theirs, ours)


@contextmanager
def _followers(server: PipelineServer, sessions: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(sessions):
            slot = session_wire.init(server)
            client = stack.enter_context(programs.module("session_client", server.http_port, slot, 10**12, 3600))
            client.expect("connected", 60)
        yield


def _walsenders(source: Connection) -> list[int]:
    query = "select pid from pg_stat_replication where application_name like 'pipeline session %' order by pid"
    return [int(row[0]) for row in source.execute(query)]


def _add(name: str, measured: list[Followed], figures: Table) -> None:
    figures.add(NAME, f"{name}: commits/s", [each.commits_per_second for each in measured])
    for figure, share in SHARES:
        milliseconds = [percentile(each.milliseconds, share) for each in measured]
        figures.add(NAME, f"{name}: commit to visible, {figure}: ms", milliseconds, "{:.1f}")
    if measured[0].walsenders:
        cores = [core for each in measured for core in each.walsenders]
        figures.add(NAME, f"{name}: CPU at the source, a session: cores", cores, "{:.3f}")
    figures.add(NAME, f"{name}: CPU of the API's process: cores", [each.api for each in measured], "{:.3f}")


def _say(where: str, sessions: int, found: Followed, others: float) -> None:
    shown = ", ".join(f"{figure} {percentile(found.milliseconds, share):.1f} ms" for figure, share in SHARES)
    walsenders = ", ".join(f"{cores:.3f}" for cores in found.walsenders)
    quiet = "" if others < QUIET_CORES else ": NOT QUIET, repeat it"
    print(
        f"{NAME}, {where}: {sessions} sessions, {found.commits_per_second:.0f} commits/s: visible {shown}; cores: "
        f"sessions' walsenders {walsenders or 'none'}, API's process {found.api:.3f}; other programs took "
        f"{others:.2f} cores{quiet}",
        flush=True,
    )
