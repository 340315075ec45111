"""Rows that are in a table before anybody follows it, and how a server reads them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import Connection, errors

from tests.benchmarks.backlog import PUBLICATION, ROW, SOURCE_DATABASE, table
from tests.benchmarks.contenders import LIMIT
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.server import PipelineServer
from tests.fixtures.postgres import Cluster

POLL = 0.02
DISK_BYTES, WAL_BYTES = 1_600, 3_000_000_000
"""For each row of the table, its copies and its events; and of WAL, which has its bounds."""


@contextmanager
def filled(cluster: Cluster, rows: int, name: str = "bench_rows") -> Iterator[Connection]:
    """The source with this many rows in this published table; bench_rows is there in any case. Gone after the block."""
    with table(cluster) as source:
        if name != "bench_rows":
            source.execute(f"create table {name} (like bench_rows including indexes)")
            source.execute(f"alter publication {PUBLICATION} add table {name}")
        source.execute(f"insert into {name} select {ROW.format('g')} from generate_series(1, {rows}) g")
        source.execute(f"vacuum analyze {name}")
        source.execute("checkpoint")
        yield source


def wait_until_read(server: PipelineServer, database: Connection) -> float:
    """Seconds from the first range being read until the table is whole, of the newest backfill."""
    deadline, started = time.monotonic() + LIMIT, 0.0
    while (now := time.monotonic()) < deadline:
        state = backfill_state(database)
        if state in ("reading", "complete"):
            started = started or now
        if state == "complete":
            return now - started
        if state == "failed":
            raise BenchmarkFailed(f"the table could not be read: {server.log_tail()}")
        server.require_alive()
        time.sleep(POLL)
    raise BenchmarkFailed(f"the table is not read after {LIMIT:.0f} s: {server.log_tail()}")


def backfill_state(database: Connection) -> str:
    """Of the newest backfill; empty when there is none yet."""
    try:
        row = database.execute("select state from pipeline.backfills order by id desc limit 1").fetchone()
    except errors.UndefinedTable:  # still migrating
        return ""
    return str(row[0]) if row else ""


def require_all(database: Connection, rows: int) -> None:
    """Raises BenchmarkFailed unless the log has every row once."""
    query = "select count(*), count(distinct record_pk), max(seq) - min(seq) + 1 from sequin_events"
    found = database.execute(query).fetchone()
    if found != (rows, rows, rows):
        raise BenchmarkFailed(f"(events, keys, span of seq) are {found}; the table has {rows} rows")


def drop_slot(cluster: Cluster, slot: str) -> None:
    """Once its reader has gone; nothing where there is none. Raises BenchmarkFailed."""
    query = (
        "select active_pid, case when active_pid is null then pg_drop_replication_slot(slot_name) end"
        " from pg_replication_slots where slot_name = %s"
    )
    deadline = time.monotonic() + 20
    with cluster.connect(SOURCE_DATABASE) as source:
        while (row := source.execute(query, (slot,)).fetchone()) and row[0] is not None:
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"slot {slot} is still read")
            time.sleep(0.1)
