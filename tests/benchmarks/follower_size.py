"""What a copy takes, what updates that leave a large value alone write, and what an applier keeps in memory."""

from __future__ import annotations

import time
from pathlib import Path

from psycopg import Connection

from tests.benchmarks import backlog
from tests.benchmarks.backlog import PUBLICATION, ROW
from tests.benchmarks.contenders import LIMIT
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.follower_rig import (
    SOURCE,
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
from tests.benchmarks.table import Table
from tests.fixtures.postgres import Cluster
from tests.fixtures.processes import peak_megabytes

NAME = "followers-size"
COPIED, LARGE, TABLES = 1_000_000, 3_000_000, 1000
RATE, CPU, WAL, MEGABYTES = 0.8, 1.2, 1.3, 100
"""The goals: a copy's rate and the source's CPU by native's, WAL of the followers' server by native's, and memory."""
LETTERS = (
    "create table letters (id int primary key, n int, words text); alter table letters alter words set storage external"
)
NUMBERS = "create table numbers (id int primary key, n int)"
_COPIES = "select exists (select from pg_stat_progress_copy where command = 'COPY TO')"
_SETTINGS = {"PIPELINE_SNAPSHOT": "never"}


def report(cluster: Cluster, figures: Table, scale: float) -> None:
    """Once each."""
    with backlog.table(cluster) as source, places(cluster, source) as at:
        _copies(at, max(1000, round(COPIED * scale)), figures)
        source.execute("truncate bench_rows")
        source.execute(LETTERS)
        source.execute(NUMBERS)
        source.execute(f"alter publication {PUBLICATION} add table letters, numbers")
        with followers(at, _SETTINGS) as ours, at.database("ours", f"{LETTERS}; {NUMBERS}; {backlog.TABLE}") as here:
            ours.add("ours")
            ours.wait("ours", "following")
            with at.database("native", f"{LETTERS}; {NUMBERS}; {backlog.TABLE}") as native:
                _letters(at, ours, here, native, max(20, round(1000 * scale)), figures)
            _large(at, ours, here, max(10_000, round(LARGE * scale)), figures)
            ours.server.require_steady()
        _many_tables(at, max(20, round(TABLES * min(1.0, scale))), figures)


def _copies(at: Places, rows: int, figures: Table) -> None:
    at.source.execute(f"insert into bench_rows select {ROW.format('g')} from generate_series(1, {rows}) g")
    at.source.execute("vacuum analyze bench_rows")
    at.settle_source()
    with at.database("native") as native:
        cost, began = Cost(at), time.monotonic()
        with subscription(at, native, copy=True):
            theirs = _copy_seconds(at, native, rows, began)
            their_cpu = cost.seconds()[SOURCE]
    at.there.drop("native")
    with followers(at, _SETTINGS) as ours, at.database("ours") as here:
        at.settle_source()
        cost, began = Cost(at, ours), time.monotonic()
        ours.add("ours", copy="source")
        mine = _copy_seconds(at, here, rows, began)
        my_cpu = cost.seconds()[SOURCE]
    figures.add(NAME, "copy: follower: rows/s", [rows / mine])
    figures.add(NAME, "copy: subscription: rows/s", [rows / theirs])
    figures.add(NAME, "copy: follower ÷ subscription: rows/s", [theirs / mine], "{:.2f}", least=RATE)
    figures.add(
        NAME,
        "copy: follower ÷ subscription: CPU of the source's server",
        [ratio(my_cpu, their_cpu)],
        "{:.2f}",
        most=CPU,
    )
    print(
        f"{NAME}, copy: {mine:.1f} s, subscription {theirs:.1f} s; source's CPU {my_cpu:.1f} and {their_cpu:.1f} s",
        flush=True,
    )


def _copy_seconds(at: Places, database: Connection, last: int, began: float) -> float:
    """From the first row being read at the source until all are visible: both check once a second for work."""
    while at.source.execute(_COPIES).fetchone() != (True,):
        if time.monotonic() > began + LIMIT:
            raise BenchmarkFailed("no copy begins")
        time.sleep(0.002)
    began = time.monotonic()
    wait_for_row(database, last)
    return time.monotonic() - began


def _letters(at: Places, ours: Followers, here: Connection, native: Connection, rows: int, figures: Table) -> None:
    """Rows of 60 KB, updated but for that."""
    with subscription(at, native, enabled=False) as name:
        at.source.execute(
            "insert into letters select g, 0, string_agg(md5((g * 2000 + i)::text), '')"
            f" from generate_series(1, {rows}) g, generate_series(1, 1875) i group by g"
        )
        wait_for_row(here, rows, "letters", ours.server)
        ours.change("pause", "ours", "paused")
        enable(name, native)
        wait_for_row(native, rows, "letters")
        disable(at, name, native)
        at.source.execute("update letters set n = n + 1")
        at.source.execute("insert into letters values (0, 0, '')")
        at.settle_source()
        before = _wal(at)
        enable(name, native)
        wait_for_row(native, 0, "letters")
        theirs, middle = _wal(at) - before, _wal(at)
        disable(at, name, native)
        ours.change("resume", "ours", "following")
        wait_for_row(here, 0, "letters", ours.server)
        mine = _wal(at) - middle
    figures.add(NAME, "60 KB left alone: follower: MB of WAL", [mine / 1e6], "{:.2f}")
    figures.add(NAME, "60 KB left alone: subscription: MB of WAL", [theirs / 1e6], "{:.2f}")
    figures.add(NAME, "60 KB left alone: follower ÷ subscription", [mine / theirs], "{:.2f}", most=WAL)
    print(f"{NAME}, 60 KB left alone: {mine / 1e6:.2f} MB, subscription {theirs / 1e6:.2f} MB", flush=True)


def _wal(at: Places) -> float:
    with at.there.connect() as connection:
        connection.execute("checkpoint")
        row = connection.execute("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')").fetchone()
    assert row is not None
    return float(row[0])


def _large(at: Places, ours: Followers, here: Connection, rows: int, figures: Table) -> None:
    pid = _peak_begins(ours)
    at.source.execute(f"insert into numbers select g, g from generate_series(1, {rows}) g")
    wait_for_row(here, rows, "numbers", ours.server)
    _add_peak(f"{rows:,} rows in one transaction", peak_megabytes(pid), figures)


def _many_tables(at: Places, tables: int, figures: Table) -> None:
    made = [f"create table t{number} (id int primary key, a text, b int, c numeric)" for number in range(tables)]
    for statement in made:
        at.source.execute(statement)
    with followers(at, _SETTINGS) as ours, at.database("ours", f"{LETTERS}; {NUMBERS}; {backlog.TABLE}") as here:
        for statement in made:
            here.execute(statement.encode())
        ours.add("ours")
        ours.wait("ours", "following")
        pid = _peak_begins(ours)
        for key in (1, 2):
            with at.source.transaction():
                for number in range(tables):
                    at.source.execute(f"insert into t{number} values ({key}, 'a', 1, 1.5)".encode())
        at.source.execute(
            ";".join(f"update t{number} set b = 2; delete from t{number} where id = 1" for number in range(tables))
        )
        at.source.execute("insert into bench_rows values (" + ROW.format(5) + ")")
        wait_for_row(here, 5, server=ours.server)
        _add_peak(f"{tables:,} tables", peak_megabytes(pid), figures)


def _peak_begins(ours: Followers) -> int:
    """The pid of the applier, whose peak is as of now."""
    [pid] = ours.appliers()
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return pid


def _add_peak(what: str, megabytes: float, figures: Table) -> None:
    figures.add(NAME, f"applier, {what}: peak MB", [megabytes], below=MEGABYTES)
    print(f"{NAME}, {what}: the applier's peak is {megabytes:.0f} MB", flush=True)
