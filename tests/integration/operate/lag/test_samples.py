"""What is kept of when the source wrote what: enough to tell, and never much."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pipeline.capture.replication import lag_sampler
from pipeline.capture.replication.lag_sampler import LagSampler
from pipeline.capture.replication.wait_timer import WaitTimer
from pipeline.capture.source import slots
from pipeline.config import settings
from pipeline.operate import samples
from pipeline.postgres.queries import statement
from pipeline.wal import lsn
from tests.fixtures.postgres import Cluster
from tests.fixtures.waiting import eventually

SOURCE = uuid.UUID(int=1)
ADD_SOURCE = """
    insert into pipeline.sources (id, system_identifier, database_name, slot) values (%s, '1', 'shop', 's')
"""
ADD_LOOKS = """
    insert into pipeline.wal_written (source_id, epoch, lsn, written_at)
    select %s, 0, n, %s::timestamptz + n * %s * interval '1 second' from generate_series(1, %s) n
"""
STUCK = "select from pg_stat_activity where application_name = %s and state_change < now() - interval '2 s' limit 1"
DAYS, APART = 10, 8


class Worker:
    """As far as it is asked: it has staged nothing."""

    starved = WaitTimer()
    blocked = WaitTimer()
    staged = 0


@pytest.fixture
def log(database_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        connection.execute(ADD_SOURCE, [SOURCE])
        yield connection


def sample(source_dsn: str, database_dsn: str, act: Callable[[LagSampler], Awaitable[None]]) -> None:
    async def run() -> None:
        at = await psycopg.AsyncConnection.connect(source_dsn, autocommit=True)
        store = await psycopg.AsyncConnection.connect(database_dsn, autocommit=True)
        async with at, store:
            await act(LagSampler(at, store, SOURCE, "s", Worker()))

    asyncio.run(run())


def newest(log: psycopg.Connection[Any]) -> int:
    return int((log.execute("select coalesce(max(lsn), 0) from pipeline.wal_written").fetchone() or [0])[0])


def test_the_last_little_that_was_written_is_kept_too(
    log: psycopg.Connection[Any], source_dsn: str, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_sampler, "STORE_SECONDS", 0.2)

    async def act(sampler: LagSampler) -> None:
        await sampler.sample()
        with psycopg.connect(source_dsn, autocommit=True) as source:
            source.execute("create table t ()")
            (text,) = source.execute("select pg_current_wal_flush_lsn()::text").fetchone() or ("",)
        await sampler.sample()
        written = lsn.parse(text)
        while newest(log) < written:
            await asyncio.sleep(0.05)
            await sampler.sample()

    sample(source_dsn, database_dsn, act)


def test_what_the_worker_waits_for_is_kept_while_it_is_behind(
    log: psycopg.Connection[Any], source_dsn: str, database_dsn: str
) -> None:
    async def act(sampler: LagSampler) -> None:
        for _ in range(3):
            await sampler.sample()

    sample(source_dsn, database_dsn, act)
    shares = log.execute("select starved, blocked, sending, moved_lsn from pipeline.worker_load").fetchall()
    assert shares == [(0, 0, 0, 0)]


def test_a_silent_source_does_not_keep_the_worker_from_ending(
    log: psycopg.Connection[Any], cluster: Cluster, source_dsn: str, database_dsn: str
) -> None:
    from tests.torture.faults.proxy import Proxy

    assert cluster.server is not None and cluster.server.port is not None
    proxy, name = Proxy(cluster.server.port), lag_sampler.session_name(SOURCE)
    through = make_conninfo(cluster.tcp_dsn("postgres"), port=proxy.port, sslmode="disable", gssencmode="disable")
    config = settings.load(source_dsn=through, database_dsn=database_dsn, slot="s")

    async def run() -> None:
        async with lag_sampler.sample_lag(config, SOURCE, Worker()):
            await asyncio.to_thread(eventually, lambda: newest(log))
            proxy.freeze(name)
            await asyncio.to_thread(eventually, lambda: log.execute(STUCK, [name]).fetchone() is not None)

    try:
        asyncio.run(run())
    finally:
        proxy.close()


def test_of_old_looks_few_are_kept_and_none_that_ends_a_quiet_time(log: psycopg.Connection[Any]) -> None:
    (now,) = log.execute("select clock_timestamp()").fetchone() or (None,)
    assert isinstance(now, datetime)
    begin = now - timedelta(days=DAYS)
    log.execute(ADD_LOOKS, [SOURCE, begin, APART, DAYS * 86_400 // APART])
    quiet = "delete from pipeline.wal_written where written_at between %s and %s"
    log.execute(quiet, [now - timedelta(hours=9), now - timedelta(hours=6, minutes=1)])
    ends = "select min(lsn) filter (where written_at > %(at)s), max(lsn) filter (where written_at < %(at)s)"
    ends += " from pipeline.wal_written"
    middle = {"at": now - timedelta(hours=8)}
    before = log.execute(ends, middle).fetchone()
    log.execute(statement("capture.replication", "thin_written"), {"source": SOURCE, "now": now})
    kept = log.execute(
        "select count(*), count(*) filter (where written_at > %(now)s::timestamptz - interval '10 minutes'),"
        " min(written_at) >= %(now)s::timestamptz - interval '8 days' from pipeline.wal_written",
        {"now": now},
    ).fetchone()
    assert kept is not None and kept[0] < 4_000 and kept[1:] == (600 // APART, True), kept
    assert log.execute(ends, middle).fetchone() == before


def test_positions_and_counts_are_stored_for_rates(
    log: psycopg.Connection[Any], source_dsn: str, database_dsn: str, slot_name: str
) -> None:
    columns = "source_lsn, confirmed_lsn, staged_lsn, shuffled_lsn, staged_changes, events"
    newest = f"select {columns} from pipeline.lag_samples order by sampled_at desc limit 1"
    gone = settings.load(source_dsn="host=/nowhere", database_dsn=database_dsn, slot=slot_name)
    samples.sample(gone)
    assert log.execute(newest).fetchone() == (None, None, None, None, 0, 0)
    log.execute(
        "insert into pipeline.replication_progress (source_id, epoch, position, commit_lsn, changes)"
        " values (%s, 0, 100, 90, 7)",
        [SOURCE],
    )
    log.execute(
        "insert into pipeline.shuffle_progress (source_id, epoch, commit_lsn, events) values (%s, 0, 80, 5)", [SOURCE]
    )
    log.execute("insert into pipeline.lag_samples select now() - interval '61 minutes', 1, 1, 1, 1, 1, 1")
    with psycopg.connect(source_dsn, autocommit=True) as source:
        confirmed = slots.create(source, slot_name)
        samples.sample(settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name))
    row = log.execute(newest).fetchone()
    assert row is not None
    assert row[0] >= row[1] == confirmed
    assert row[2:] == (100, 80, 7, 5)
    assert log.execute("select count(*) from pipeline.lag_samples").fetchone() == (2,), "an hour is kept"
