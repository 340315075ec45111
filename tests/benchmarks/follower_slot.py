"""From the slot to the last follower: what none, one, three and eight of them cost, beside as many subscriptions."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass

from tests.benchmarks import backlog
from tests.benchmarks.backlog import ROW
from tests.benchmarks.contenders import visible_events, wait_for_events
from tests.benchmarks.follower_rig import (
    APPLIERS,
    LOG,
    OURS,
    SOURCE,
    THERE,
    Cost,
    Places,
    disable,
    enable,
    followers,
    places,
    ratio,
    subscription,
    wait_for_row,
)
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.table import Table
from tests.fixtures.postgres import Cluster

NAME = "followers-slot"
BULK, SMALL = (100_000, 20_000, 10_000), 50_000
COUNTS, NATIVE = (0, 1, 3, 8), (1, 3)
JUDGED = 3
ALONE, OF_NATIVE, RENDERED, SHARE_LATER, LATER = 1.1, 0.6, 1.3, 0.05, 1.0
"""The goals at three: the source's CPU by that without followers and by native's, rendering by that for one, and how
much later than the log the last follower is done, as a share and in seconds."""
_APART = 10_000_000


@dataclass(frozen=True)
class Drained:
    """Seconds from the slot being read until the log, and the last follower, had everything."""

    changes: int
    log: float
    last: float
    cpu: dict[str, float]


def report(cluster: Cluster, figures: Table, scale: float) -> None:
    """Once for each number of followers, and of subscriptions."""
    ours, native = dict[int, Drained](), dict[int, Drained]()
    others: list[float] = []
    with backlog.table(cluster) as source, places(cluster, source) as at:
        for number, count in enumerate(COUNTS):
            meter = OtherPrograms(*at.pids)
            ours[count] = _ours(at, count, number * _APART, scale)
            others.append(meter.cores())
            _say(f"{count} followers", ours[count])
        for number, count in enumerate(NATIVE):
            meter = OtherPrograms(*at.pids)
            native[count] = _native(at, count, (len(COUNTS) + number) * _APART, scale)
            others.append(meter.cores())
            _say(f"{count} subscriptions", native[count])
    _add(ours, native, figures)
    figures.add(NAME, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)


def _ours(at: Places, count: int, after: int, scale: float) -> Drained:
    with followers(at) as ours, ExitStack() as stack:
        names = [f"follower{number}" for number in range(count)]
        there = [stack.enter_context(at.database(name)) for name in names]
        for name in names:
            ours.add(name)
        for name in names:
            ours.wait(name, "following")
        before = visible_events(ours.log)
        with ours.standing_still():
            changes = _fill(at, after, scale)
        began, cost = time.monotonic(), Cost(at, ours)
        wait_for_events(ours.server, ours.log, before + changes)
        log = time.monotonic() - began
        for database in there:
            wait_for_row(database, after, server=ours.server)
        last, cpu = time.monotonic() - began, cost.seconds()
        ours.server.require_steady()
    return Drained(changes, log, last, cpu)


def _native(at: Places, count: int, after: int, scale: float) -> Drained:
    with ExitStack() as stack:
        there = [stack.enter_context(at.database(f"subscriber{number}")) for number in range(count)]
        names = [stack.enter_context(subscription(at, database, enabled=False)) for database in there]
        changes = _fill(at, after, scale)
        began, cost = time.monotonic(), Cost(at)
        for name, database in zip(names, there, strict=True):
            enable(name, database)
        for database in there:
            wait_for_row(database, after)
        found = Drained(changes, 0.0, time.monotonic() - began, cost.seconds())
        for name, database in zip(names, there, strict=True):
            disable(at, name, database)
    return found


def _fill(at: Places, after: int, scale: float) -> int:
    """Commit the backlog, the last row of it with the key `after`; returns its size."""
    rows, updated, deleted = (max(10, round(n * scale)) for n in BULK)
    small, first = max(10, round(SMALL * scale)), after + _APART // 2
    at.source.execute("set synchronous_commit = off")
    at.source.execute(
        f"insert into bench_rows select {ROW.format('g')} from generate_series({after + 1}, {after + rows}) g"
    )
    at.source.execute(f"update bench_rows set quantity = quantity + 1 where id > {after} and id <= {after + updated}")
    at.source.execute(f"delete from bench_rows where id > {after + rows - deleted}")
    at.source.execute(backlog.fill_statement(small, 1, after=first))
    at.source.execute(f"insert into bench_rows values ({ROW.format(after)})")
    at.source.execute("reset synchronous_commit")
    with at.cluster.connect() as connection:
        connection.execute("checkpoint")
    return rows + updated + deleted + small + 1


def _add(ours: dict[int, Drained], native: dict[int, Drained], figures: Table) -> None:
    for count, found in ours.items():
        figures.add(NAME, f"{count} followers: the log has everything: s", [found.log], "{:.1f}")
        if count:
            figures.add(NAME, f"{count} followers: the last has everything: s", [found.last], "{:.1f}")
    for count, found in native.items():
        figures.add(NAME, f"{count} subscriptions: the last has everything: s", [found.last], "{:.1f}")
    _judge(ours[0], ours[1], ours[JUDGED], native[JUDGED], figures)
    for who, each in (("followers", ours), ("subscriptions", native)):
        for count, found in each.items():
            for process in (SOURCE, OURS, LOG, APPLIERS, THERE):
                if used := found.cpu.get(process, 0.0):
                    per_million = [used / found.changes * 1e6]
                    figures.add(NAME, f"{count} {who}: {process}: CPU s per 1 M changes", per_million, "{:.1f}")
            whole = [sum(found.cpu.values()) / found.changes * 1e6]
            figures.add(NAME, f"{count} {who}: in all: CPU s per 1 M changes", whole, "{:.1f}")


def _judge(alone: Drained, one: Drained, three: Drained, native: Drained, figures: Table) -> None:
    late = max(0.0, three.last - three.log - SHARE_LATER * three.log)
    figures.add(NAME, f"{JUDGED} followers: later than the log and 5 %: s", [late], "{:.1f}", most=LATER)
    at_source = ratio(three.cpu[SOURCE], alone.cpu[SOURCE])
    figures.add(NAME, f"{JUDGED} followers ÷ none: CPU of the source's server", [at_source], "{:.2f}", most=ALONE)
    what = f"{JUDGED} followers ÷ subscriptions: CPU of the source's server"
    figures.add(NAME, what, [ratio(three.cpu[SOURCE], native.cpu[SOURCE])], "{:.2f}", most=OF_NATIVE)
    what = f"{JUDGED} followers ÷ 1: what they add to the CPU of the pipeline database's server"
    rendered = ratio(three.cpu[LOG] - alone.cpu[LOG], one.cpu[LOG] - alone.cpu[LOG])
    figures.add(NAME, what, [rendered], "{:.2f}", most=RENDERED)


def _say(what: str, found: Drained) -> None:
    used = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found.cpu.items())
    print(f"{NAME}, {what}: log {found.log:.1f} s, last {found.last:.1f} s; CPU s: {used}", flush=True)
