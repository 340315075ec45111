"""From commit to received: our WebSocket beside Debezium Embedded and pg_recvlogical, each alone, in turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from psycopg import Connection

from pipeline.postgres.embedded import wheel_bin_dir
from tests.benchmarks import api, programs
from tests.benchmarks.backlog import PUBLICATION, SOURCE_DATABASE, table
from tests.benchmarks.debezium import DebeziumJava
from tests.benchmarks.errors import BenchmarkFailed, CannotRun
from tests.benchmarks.latency import SHARES
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.programs import Program
from tests.benchmarks.server import serve
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.benchmarks.visible import percentile
from tests.fixtures.postgres import Cluster

NAME = "stream-latency"
PACE = 1000
"""Commits a second."""
COMMITS, WARM_UP = 6000, 4000
"""Those that count, and those before them: Debezium's JVM compiles what it runs."""
PATIENCE = 90.0
"""Seconds for whatever is awaited."""
LIMIT = 300
"""Seconds after which a receiver gives up."""
SLOT = "latency"
GOAL = 3.0
"""How many times ours the median of the tuned Debezium is, at least."""
POLLS = {"default": 500, "tuned": 1}
"""poll.interval.ms: how long Debezium collects a batch."""


@dataclass(frozen=True)
class Latencies:
    """Milliseconds to received, sorted: from COMMIT having returned to the writer, and from the commit's timestamp."""

    from_commit: list[float]
    from_source: list[float]
    commits_per_second: float


Receive = Callable[[Cluster, Connection], AbstractContextManager[Program]]
"""With the source, before any write: a program that receives all events, and says "warm" on its way."""
Found = Mapping[str, list[Latencies]]
"""What each contender came to, run by run."""


def report(cluster: Cluster, figures: Table, scale: float, runs: int, only: Sequence[str], classes: Path) -> None:
    """Measure each contender `runs` times and add the figures; one that cannot run here is left out.

    A contender that fails is out; the others go on, and BenchmarkFailed is raised at the end.
    """
    commits = round(COMMITS * min(1.0, max(0.1, scale)))
    found: defaultdict[str, list[Latencies]] = defaultdict(list)
    others: list[float] = []
    failures: dict[str, str] = {}
    contenders = _contenders(only, WARM_UP + commits, classes, figures)
    for run in range(1, runs + 1):
        for name in (name for name in contenders if name not in failures):
            meter = OtherPrograms(postmaster(cluster))
            try:
                found[name].append(measure(cluster, contenders[name], commits))
            except BenchmarkFailed as error:
                failures[name] = f"{name}, run {run}: {error}"
                continue
            others.append(meter.cores())
            say(f"{NAME}, run {run} of {runs}: {name}", found[name][-1], others[-1])
    _add({name: found[name] for name in contenders if name not in failures}, figures)
    if others:
        figures.add(NAME, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)
    if failures:
        raise BenchmarkFailed(f"{NAME}: {'; '.join(failures.values())}")


def in_turn(
    name: str,
    contenders: Mapping[str, Receive],
    cluster: Cluster,
    figures: Table,
    runs: int,
    commits: int,
    *,
    pace: int = PACE,
    warm_up: int = WARM_UP,
) -> Found:
    """Measure each `runs` times, in turn, for the part of that name; adds their figures, and what was busy beside."""
    found: defaultdict[str, list[Latencies]] = defaultdict(list)
    others: list[float] = []
    for run in range(1, runs + 1):
        for contender, receive in contenders.items():
            meter = OtherPrograms(postmaster(cluster))
            found[contender].append(measure(cluster, receive, commits, pace, warm_up))
            others.append(meter.cores())
            say(f"{name}, run {run} of {runs}: {contender}", found[contender][-1], others[-1])
    for contender, measured in found.items():
        _add_latencies(name, contender, measured, figures, "{:.2f}")
    figures.add(name, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)
    return found


def _add_latencies(name: str, contender: str, measured: Sequence[Latencies], figures: Table, form: str) -> None:
    figures.add(name, f"{contender}: commits/s", [each.commits_per_second for each in measured])
    for figure, share in SHARES:
        milliseconds = [percentile(each.from_commit, share) for each in measured]
        figures.add(name, f"{contender}: commit to received, {figure}: ms", milliseconds, form)


def ratios(mine: Sequence[Latencies], theirs: Sequence[Latencies]) -> list[float]:
    """Of the medians from commit to received, run by run."""
    pairs = zip(mine, theirs, strict=True)
    return [median(one.from_commit) / median(other.from_commit) for one, other in pairs]


def measure(cluster: Cluster, receive: Receive, commits: int, pace: int = PACE, warm_up: int = WARM_UP) -> Latencies:
    """Single-row transactions at this pace: `warm_up` of them and, when they have come, those that count."""
    with table(cluster) as source, receive(cluster, source) as receiver:
        _write(cluster, 0, warm_up, pace)
        receiver.expect("warm", PATIENCE)
        committed = _write(cluster, warm_up, commits, pace)
        seen = {int(key): (int(at), int(said)) for key, at, said in receiver.rest(PATIENCE)}
    if missing := committed.keys() - seen.keys():
        raise BenchmarkFailed(f"{len(missing)} of {len(committed)} commits were never received")
    spent = max(committed.values()) - min(committed.values())
    return Latencies(
        sorted((seen[key][0] - at) / 1000 for key, at in committed.items()),
        sorted((seen[key][0] - seen[key][1]) / 1000 for key in committed if seen[key][1]),
        (commits - 1) / spent * 1e6,
    )


def _write(cluster: Cluster, after: int, commits: int, pace: int) -> dict[int, int]:
    with programs.module("writer", cluster.tcp_dsn(SOURCE_DATABASE), after, commits, pace) as writer:
        return {int(key): int(at) for key, at in writer.rest(PATIENCE)}


def _contenders(only: Sequence[str], events: int, classes: Path, figures: Table) -> dict[str, Receive]:
    found: dict[str, Receive] = {}
    if not only or "pipeline" in only:
        found["pipeline, WebSocket"] = partial(websocket, events)
    if not only or "debezium" in only:
        try:
            java = DebeziumJava(classes)
        except CannotRun as reason:
            print(f"{NAME}: {reason}", flush=True)
            figures.note(NAME, "Debezium", "left out")
        else:
            found |= {
                f"Debezium, {name} ({milliseconds} ms)": partial(debezium, java, milliseconds, events)
                for name, milliseconds in POLLS.items()
            }
    if not only or "pg_recvlogical" in only:
        found["pg_recvlogical, a pipe"] = partial(_pg_recvlogical, events)
    return found


@contextmanager
def websocket(
    events: int,
    cluster: Cluster,
    source: Connection,
    *,
    warm_up: int = WARM_UP,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Program]:
    """Our own client stream."""
    with serve(cluster, SLOT, settings=settings) as server:
        server.wait_active(source)
        api.create_consumer(server, SLOT, "cursor")
        with programs.module("receiver", events, LIMIT, warm_up, "websocket", api.stream(server, SLOT)) as receiver:
            receiver.expect("connected", PATIENCE)
            yield receiver
            server.require_steady()


@contextmanager
def _pg_recvlogical(events: int, cluster: Cluster, source: Connection) -> Iterator[Program]:
    _create_slot(source)
    command = [
        wheel_bin_dir() / "pg_recvlogical", "--start", "--no-loop", "--slot", SLOT, "--file", "-",
        "--dbname", cluster.tcp_dsn(SOURCE_DATABASE), "--fsync-interval", "0", "--status-interval", "1",
        "--option", "proto_version=1", "--option", f"publication_names={PUBLICATION}",
    ]  # fmt: skip
    with programs.module("receiver", events, LIMIT, WARM_UP, "pg_recvlogical", *command) as receiver:
        receiver.expect("connected", PATIENCE)
        yield receiver


@contextmanager
def debezium(java: DebeziumJava, poll: int, events: int, cluster: Cluster, source: Connection) -> Iterator[Program]:
    """Debezium Embedded, which collects a batch for this many milliseconds."""
    _create_slot(source)
    arguments = (events, LIMIT, WARM_UP)
    command = java.command("Latency", arguments, cluster, SLOT, {"poll.interval.ms": poll})
    with programs.program(java.name, command) as receiver:
        yield receiver


def _create_slot(source: Connection) -> None:
    source.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))


def _add(found: dict[str, list[Latencies]], figures: Table) -> None:
    for name, runs in found.items():
        _add_latencies(NAME, name, runs, figures, "{:.1f}")
        if all(run.from_source for run in runs):
            milliseconds = [median(run.from_source) for run in runs]
            figures.add(NAME, f"{name}: from its commit's timestamp, median: ms", milliseconds, "{:.1f}")
    ours = found.get("pipeline, WebSocket")
    for name in (name for name in found if ours and name.startswith("Debezium")):
        least = GOAL if "tuned" in name else None
        figures.add(NAME, f"{name} ÷ pipeline, median", ratios(found[name], ours or []), "{:.2f}", least=least)


def say(where: str, found: Latencies, others: float) -> None:
    """One line about one run, and how quiet the machine was."""
    shown = ", ".join(f"{figure} {percentile(found.from_commit, share):.1f} ms" for figure, share in SHARES)
    said = f"; median from its commit's timestamp {median(found.from_source):.1f} ms" if found.from_source else ""
    quiet = "" if others < QUIET_CORES else ": NOT QUIET, repeat it"
    print(
        f"{where}: {len(found.from_commit):,} commits at {found.commits_per_second:.0f}/s: {shown}{said}; "
        f"other programs took {others:.2f} cores{quiet}",
        flush=True,
    )
