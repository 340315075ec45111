"""How fast a follower that was paused catches up with the log, beside a subscription that was disabled."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass

from psycopg import Connection

from tests.benchmarks import backlog
from tests.benchmarks.backlog import ROW
from tests.benchmarks.contenders import visible_events, wait_for_events
from tests.benchmarks.follower_rig import (
    APPLIERS,
    LOG,
    SOURCE,
    THERE,
    Cost,
    Followers,
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

NAME = "followers-catchup"
BULK, SMALL = (400_000, 80_000, 40_000), 150_000
"""Inserts, updates and deletes in three transactions; transactions of one inserted row each."""
RATE, CPU = 2.0, 0.4
"""The goals: times native's rate, and the share of native's CPU at the followers' server."""
_APART = 10_000_000
"""Between the keys of two backlogs."""


_SUBSCRIPTION = "select subsynccommit from pg_subscription"


@dataclass(frozen=True)
class Caught:
    """One backlog, caught up with once."""

    changes: int
    seconds: float
    cpu: dict[str, float]

    @property
    def rate(self) -> float:
        return self.changes / self.seconds


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Both backlogs, each by both in turn, `runs` times: who begins changes from run to run."""
    found: defaultdict[tuple[str, str], list[Caught]] = defaultdict(list)
    others: list[float] = []
    with backlog.table(cluster) as source, places(cluster, source) as at, followers(at) as ours:
        here, native = at.database("ours"), at.database("native")
        with here, native:
            ours.add("ours")
            ours.wait("ours", "following")
            with subscription(at, native, enabled=False) as name:
                figures.note(NAME, "synchronous_commit", _commits(here, native))
                ours.change("pause", "ours", "paused")
                for run in range(1, runs + 1):
                    for number, kind in enumerate(("bulk", "one-row")):
                        after = (2 * run + number) * _APART
                        changes = _fill(at, ours, kind, after, scale)
                        meter = OtherPrograms(*at.pids, ours.server.process.pid)
                        for contender in ("ours", "native") if run % 2 else ("native", "ours"):
                            caught = (
                                _ours(at, ours, here, after, changes)
                                if contender == "ours"
                                else _native(at, name, native, after, changes)
                            )
                            found[kind, contender].append(caught)
                            _say(f"{NAME}, run {run} of {runs}, {kind}: {contender}", caught)
                        others.append(meter.cores())
                ours.server.require_steady()
    for kind in ("bulk", "one-row"):
        _add(kind, found[kind, "ours"], found[kind, "native"], figures)
    figures.add(NAME, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)


def _commits(here: Connection, native: Connection) -> str:
    """What each waits for at its commits, as both are by default."""
    ours, theirs = here.execute("show synchronous_commit").fetchone(), native.execute(_SUBSCRIPTION).fetchone()
    assert ours is not None
    assert theirs is not None
    return f"follower {ours[0]}, subscription {theirs[0]}"


def _fill(at: Places, ours: Followers, kind: str, after: int, scale: float) -> int:
    """Commit it, the last row of it with the key `after`, and wait until all of it is in the log; returns its size."""
    before = visible_events(ours.log)
    if kind == "bulk":
        rows, updated, deleted = (max(10, round(n * scale)) for n in BULK)
        at.source.execute(
            f"insert into bench_rows select {ROW.format('g')} from generate_series({after + 1}, {after + rows}) g"
        )
        at.source.execute(
            "update bench_rows set quantity = quantity + 1, amount = amount + 0.01"
            f" where id > {after} and id <= {after + updated}"
        )
        at.source.execute(f"delete from bench_rows where id > {after + rows - deleted}")
        changes = rows + updated + deleted
    else:
        changes = max(10, round(SMALL * scale))
        at.source.execute("set synchronous_commit = off")
        at.source.execute(backlog.fill_statement(changes, 1, after=after))
        at.source.execute("reset synchronous_commit")
    at.source.execute(f"insert into bench_rows values ({ROW.format(after)})")
    wait_for_events(ours.server, ours.log, before + changes + 1)
    at.settle()
    return changes + 1


def _ours(at: Places, ours: Followers, database: Connection, last: int, changes: int) -> Caught:
    cost = Cost(at, ours)
    ours.log.execute("update pipeline.followers set wanted = 'running' where name = 'ours'")
    began = _begin(database)
    wait_for_row(database, last, server=ours.server)
    seconds, cpu = time.monotonic() - began, cost.seconds()
    ours.change("pause", "ours", "paused")
    return Caught(changes, seconds, cpu)


def _native(at: Places, name: str, database: Connection, last: int, changes: int) -> Caught:
    cost = Cost(at)
    enable(name, database)
    began = _begin(database)
    wait_for_row(database, last)
    seconds, cpu = time.monotonic() - began, cost.seconds()
    disable(at, name, database)
    return Caught(changes, seconds, cpu)


def _begin(database: Connection) -> float:
    """The clock begins with the first session that writes: both look once a second whether they are wanted."""
    query = (
        "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        " and (application_name = 'pipeline applier' or backend_type = 'logical replication apply worker')"
    )
    while database.execute(query).fetchone() is None:
        time.sleep(0.002)
    return time.monotonic()


def _add(kind: str, ours: list[Caught], native: list[Caught], figures: Table) -> None:
    figures.add(NAME, f"{kind}, follower: changes/s", [each.rate for each in ours])
    figures.add(NAME, f"{kind}, subscription: changes/s", [each.rate for each in native])
    ratios = [mine.rate / theirs.rate for mine, theirs in zip(ours, native, strict=True)]
    figures.add(NAME, f"{kind}, follower ÷ subscription: changes/s", ratios, "{:.2f}", least=RATE)
    shares = [ratio(mine.cpu[THERE], theirs.cpu[THERE]) for mine, theirs in zip(ours, native, strict=True)]
    figures.add(NAME, f"{kind}, follower ÷ subscription: CPU of the followers' server", shares, "{:.2f}", most=CPU)
    for who, found in (("follower", ours), ("subscription", native)):
        for process in (SOURCE, LOG, APPLIERS, THERE):
            used = [each.cpu.get(process, 0.0) / each.changes * 1e6 for each in found]
            if max(used) >= 0.05:
                figures.add(NAME, f"{kind}, {who}: {process}: CPU s per 1 M changes", used, "{:.1f}")


def _say(where: str, caught: Caught) -> None:
    used = ", ".join(f"{name} {seconds:.1f}" for name, seconds in caught.cpu.items())
    print(f"{where}: {caught.rate:,.0f} changes/s ({caught.seconds:.2f} s); CPU s: {used}", flush=True)
