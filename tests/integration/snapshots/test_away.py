"""A database that goes away while a table is read: what was begun is read again, and nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from pipeline.config import settings
from pipeline.snapshots import plan
from tests.fixtures.snapshotting import Snapshotting, snapshotting
from tests.fixtures.waiting import eventually

TABLE = "create table t (id int primary key, note text)"
ROWS = "insert into t select i, repeat('x', 200) from generate_series(1, 4000) i"
RANGES = 1_000


@pytest.fixture
def reading(
    source_dsn: str, database_dsn: str, slot_name: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Snapshotting]:
    """Its first range of several is read."""
    monkeypatch.setattr(plan, "ROWS", RANGES)
    config = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)
    with snapshotting(config, TABLE, ROWS) as found:
        found.begin("t")
        assert found.read()
        yield found


def end_session(reading: Snapshotting, pid: int) -> None:
    """As an administrator does; returns when it is gone."""
    assert reading.source.execute("select pg_terminate_backend(%s, 60000)", [pid]).fetchone() == (True,)


@pytest.mark.parametrize("stored", [False, True], ids=["while rows come", "once they are stored"])
def test_a_session_at_the_source_ends_within_a_range(reading: Snapshotting, stored: bool) -> None:
    dsn, worker = reading.config.database, reading.worker
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn) as holder, psycopg.connect(dsn) as next_holder:
        holder.execute("lock table pipeline.segments in exclusive mode")
        range_read = pool.submit(reading.read)

        def waits_for(held_by: psycopg.Connection) -> bool:
            waits = "select %s = any(pg_blocking_pids(%s))"
            pids = [held_by.info.backend_pid, worker.staging.info.backend_pid]
            return reading.log.execute(waits, pids).fetchone() == (True,)

        eventually(lambda: waits_for(holder))
        if stored:
            next_holder.execute("select from pipeline.snapshot_ranges where state = 'reading' for update")
            holder.rollback()
            eventually(lambda: waits_for(next_holder))
        end_session(reading, worker.source.info.backend_pid)
        holder.rollback()
        next_holder.rollback()
        with pytest.raises(psycopg.OperationalError, match=r"terminating connection|closed the connection"):
            range_read.result()
    row = reading.row("t")
    assert row is not None and "it is tried again" in row[1]
    worker.claiming.close()
    reading.worker = reading.new_worker()
    whole_and_nothing_twice(reading)


def test_the_session_of_what_leads_ends(reading: Snapshotting) -> None:
    end_session(reading, reading.coordinator._source.info.backend_pid)
    with pytest.raises(psycopg.OperationalError):
        reading.coordinator.step()
    reading._leader = reading._connect(reading.config.source)
    reading.coordinator = reading.new_coordinator()
    whole_and_nothing_twice(reading)


def whole_and_nothing_twice(reading: Snapshotting) -> None:
    reading.finish("t")
    assert reading.folded("t") == reading.table("t")
    assert sorted(reading.events("t")) == sorted(("read", key) for key in reading.table("t"))
    row = reading.row("t")
    assert row is not None and row[1] is None
