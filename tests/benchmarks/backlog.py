"""The backlogs: a slot of the `source` database, and what was committed since it was made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from psycopg import Connection

from tests.fixtures.postgres import Cluster

SOURCE_DATABASE, SLOT, PUBLICATION = "source", "backlog", "pipeline"
SMALL = 300_000
"""Transactions of the small backlog."""
WIDE = 200_000
"""Rows of the wide backlog."""
TENS, ROWS = 60_000, 10
"""Transactions of the backlog for several slots, and the rows of each."""
PIECES = 16
"""How often the source logs its running transactions in that backlog; by itself it does so every 15 s."""

TABLE = """
create table bench_rows (
    id bigint primary key,
    quantity int not null,
    customer text not null,
    amount numeric(12,2) not null,
    note text,
    ordered_at timestamptz not null,
    details jsonb not null,
    state int not null
)
"""
ROW = """
    {0}, {0} % 1000, 'customer ' || {0}, ({0} % 10000000) / 100.0, md5({0}::text) || ' note of ' || {0},
    timestamptz '2024-01-01 00:00:00+00' + {0} * interval '1.001 s',
    jsonb_build_object('id', {0}, 'tags', jsonb_build_array('new', 'web'), 'hash', md5({0}::text)), {0} % 7
"""
"""A row of number {0}, about 200 bytes of text."""
WIDE_ROW = ROW.replace(
    "md5({0}::text) || ' note of ' || {0}",
    "(select string_agg(md5(({0} + i)::text), '') from generate_series(1, 26) i)",
)
"""The same of about 1 KB, which TOAST leaves alone."""


@dataclass(frozen=True)
class Backlog:
    """What waits in SLOT: this many changes, the last of them committed before `end`. `megabytes`: of rows, as text."""

    name: str
    changes: int
    transactions: int
    end: str
    megabytes: float


Beside = Callable[[Connection], AbstractContextManager[object]]
"""What runs on the source from before its backlog is made until the end."""


def _nothing(_source: Connection) -> AbstractContextManager[object]:
    return nullcontext()


@contextmanager
def table(cluster: Cluster) -> Iterator[Connection]:
    """A fresh `source` database with the table and its publication; gone, slots and all, after the block."""
    cluster.drop(SOURCE_DATABASE)
    cluster.create(SOURCE_DATABASE)
    try:
        with cluster.connect(SOURCE_DATABASE) as connection:
            connection.execute(TABLE)
            connection.execute(f"create publication {PUBLICATION} for table bench_rows")
            yield connection
    finally:
        cluster.drop(SOURCE_DATABASE)


@contextmanager
def bulk(cluster: Cluster, scale: float, beside: Beside = _nothing) -> Iterator[Backlog]:
    """1 M inserts, 200 k updates and 100 k deletes in three transactions."""
    rows, updated, deleted = (max(10, round(n * scale)) for n in (1_000_000, 200_000, 100_000))
    with _filled(
        cluster, "bulk", rows + updated + deleted, 3, lambda source: _fill_bulk(source, rows, updated, deleted), beside
    ) as made:
        yield made


@contextmanager
def small(cluster: Cluster, scale: float, beside: Beside = _nothing) -> Iterator[Backlog]:
    """300 k transactions of one inserted row each."""
    rows = max(10, round(SMALL * scale))
    with _filled(cluster, "small", rows, rows, lambda source: _fill(source, rows, 1), beside) as made:
        yield made


@contextmanager
def wide(cluster: Cluster, scale: float, beside: Beside = _nothing) -> Iterator[Backlog]:
    """200 k inserted rows of 1 KB, a hundred in a transaction."""
    transactions = max(10, round(WIDE / 100 * scale))
    with _filled(
        cluster,
        "wide",
        100 * transactions,
        transactions,
        lambda source: _fill(source, transactions, 100, WIDE_ROW),
        beside,
    ) as made:
        yield made


@contextmanager
def tens(cluster: Cluster, scale: float) -> Iterator[Backlog]:
    """60 k transactions of ten inserted rows each, which several slots can divide among them."""
    pieces, each = PIECES, max(10, round(TENS / PIECES * scale))

    def fill(source: Connection) -> None:
        for piece in range(pieces):
            _fill(source, each, ROWS, ROW, after=piece * each * ROWS)
            source.execute("select pg_log_standby_snapshot()")

    with _filled(cluster, "tens", pieces * each * ROWS, pieces * each, fill) as made:
        yield made


BACKLOGS = {"bulk": bulk, "small": small, "wide": wide}


@contextmanager
def copied_slot(cluster: Cluster, name: str) -> Iterator[str]:
    """A copy of SLOT, to be drained once; the original keeps the backlog."""
    with cluster.connect(SOURCE_DATABASE) as connection:
        connection.execute("checkpoint")  # every drain begins with the same work before the next one
        connection.execute("select pg_copy_logical_replication_slot(%s, %s)", (SLOT, name))
        try:
            yield name
        finally:
            _drop_slot(connection, name)


def _fill_bulk(source: Connection, rows: int, updated: int, deleted: int) -> None:
    source.execute(f"insert into bench_rows select {ROW.format('g')} from generate_series(1, {rows}) g")
    source.execute(f"update bench_rows set quantity = quantity + 1, amount = amount + 0.01 where id <= {updated}")
    source.execute(f"delete from bench_rows where id > {rows - deleted}")


def fill_statement(transactions: int, rows: int, row: str = ROW, after: int = 0) -> str:
    """Commits this many transactions of this many rows each, the first of number `after` + 1, as fast as it can."""
    insert = f"insert into bench_rows select {row.format('g')} from generate_series(k + 1, k + {rows}) g"
    if rows == 1:
        insert = f"insert into bench_rows values ({row.format('(k + 1)')})"
    last = after + (transactions - 1) * rows
    return f"do $$ begin for k in {after}..{last} by {rows} loop {insert}; commit; end loop; end $$"


def _fill(source: Connection, transactions: int, rows: int, row: str = ROW, after: int = 0) -> None:
    source.execute("set synchronous_commit = off")
    source.execute(fill_statement(transactions, rows, row, after))
    source.execute("reset synchronous_commit")


@contextmanager
def _filled(
    cluster: Cluster,
    name: str,
    changes: int,
    transactions: int,
    fill: Callable[[Connection], None],
    beside: Beside = _nothing,
) -> Iterator[Backlog]:
    with table(cluster) as source, beside(source):
        source.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
        begin, started = _position(source), time.monotonic()
        fill(source)
        seconds, end = time.monotonic() - started, _position(source)
        # Two marks behind the end: who stops at it does so without waiting for a keepalive.
        for _ in range(2):
            source.execute("select pg_logical_emit_message(false, 'bench', 'end of backlog')")
        source.execute("vacuum analyze bench_rows")
        row = source.execute(
            "select pg_wal_lsn_diff(%s, %s), avg(octet_length(r::text)) from (select * from bench_rows limit 1000) r",
            (end, begin),
        ).fetchone()
        assert row is not None
        print(
            f"{name}: {changes:,} changes in {transactions:,} transactions, made in {seconds:.1f} s, "
            f"{row[0] / 1_000_000:,.0f} MB of WAL, rows of {row[1]:.0f} bytes",
            flush=True,
        )
        yield Backlog(name, changes, transactions, end, changes * float(row[1]) / 1e6)


def _position(connection: Connection) -> str:
    row = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return str(row[0])


def _drop_slot(connection: Connection, name: str) -> None:
    deadline = time.monotonic() + 20
    while True:
        row = connection.execute("select active_pid from pg_replication_slots where slot_name = %s", (name,)).fetchone()
        if row is None:
            return
        if row[0] is None or time.monotonic() > deadline:
            connection.execute("select pg_drop_replication_slot(%s)", (name,))
            return
        connection.execute("select pg_terminate_backend(%s)", (row[0],))
        time.sleep(0.05)
