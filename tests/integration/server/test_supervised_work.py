"""Threads and tasks of a server survive unexpected errors: they start again, or what they hold is lost cleanly."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime

import psycopg
import pytest
from apscheduler.triggers.interval import IntervalTrigger

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import Unavailable
from pipeline.postgres import role_locks
from pipeline.postgres.pool import Pool
from pipeline.process import supervised
from pipeline.readers.cursor import claims
from pipeline.readers.cursor.leases import Cursors
from pipeline.rpc.presence import ROLE, Presence
from pipeline.server import schedule
from pipeline.server.leadership import Leadership
from tests.fixtures.waiting import eventually


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds takes less here."""
    monkeypatch.setattr(supervised, "RESTART_SECONDS", 0.01)
    monkeypatch.setattr(claims, "REVIEW_SECONDS", 0.01)


@pytest.fixture
def config(database_dsn: str) -> Config:
    return settings.load(source_dsn="host=/nowhere", database_dsn=database_dsn)


def test_the_presence_of_grpc_continues_after_an_unexpected_error(config: Config) -> None:
    presence = Presence(config, "test:1")
    with presence.kept(), psycopg.connect(config.database, autocommit=True) as connection:

        def state() -> str:
            return role_locks.states(connection)[ROLE].state

        eventually(lambda: state() == "starting", errors=(KeyError,))
        presence.report("waiting", "port \ud800 is taken")  # no text that can be sent
        eventually(lambda: presence._changed.is_set() is False)
        presence.report("running")
        eventually(lambda: state() == "running")


def test_cursors_are_claimed_again_after_an_unexpected_error(config: Config) -> None:
    async def run(log: psycopg.Connection) -> None:
        pool = Pool(config.database, "test")
        cursors = Cursors(config.database, pool.transaction)
        await pool.open()
        try:
            await claim_twice(log, cursors)
        finally:
            await cursors.close()
            await pool.close()

    async def claim_twice(log: psycopg.Connection, cursors: Cursors) -> None:
        async with cursors.claim("c", "first") as claim:
            log.execute("update pipeline.consumers set position = null")
            assert isinstance(await asyncio.wait_for(claim.ended, 60), Unavailable)
            log.execute("update pipeline.consumers set position = 0")
        async with cursors.claim("c", "second") as claim:
            await cursors.advance(claim, 0)

    with psycopg.connect(config.database, autocommit=True) as log:
        log.execute("select pipeline.create_consumer('c', 'cursor')")
        log.execute("alter table pipeline.consumers alter position drop not null")
        asyncio.run(run(log))


def test_a_server_competes_for_the_lead_after_an_unexpected_error() -> None:
    called = threading.Semaphore(0)

    def revive() -> None:
        called.release()
        raise ValueError("the database cannot be revived")

    with Leadership("host=/nowhere", "a name", revive) as leads:
        assert called.acquire(timeout=60) and called.acquire(timeout=60)
        assert not leads()


class FailingOnce(IntervalTrigger):  # type: ignore[misc]
    """A trigger of which APScheduler's thread gets an unexpected error, after its first run."""

    failed = False

    def get_next_fire_time(self, before: datetime | None, now: datetime) -> datetime | None:
        if before is not None and not self.failed:
            type(self).failed = True
            raise ZeroDivisionError
        following: datetime | None = super().get_next_fire_time(before, now)
        return following


def test_the_schedule_continues_after_an_unexpected_error(config: Config) -> None:
    runs = threading.Semaphore(0)
    scheduler = schedule.planned(config, lambda: True)
    scheduler.remove_all_jobs()
    scheduler.add_job(runs.release, FailingOnce(seconds=1))
    scheduler.start()
    try:
        for _ in range(2):
            assert runs.acquire(timeout=60)
        assert FailingOnce.failed
    finally:
        scheduler.shutdown()


def test_closed_cursors_leave_no_session_and_none_can_be_claimed(config: Config) -> None:
    async def run(log: psycopg.Connection) -> None:
        pool = Pool(config.database, "test")
        cursors = Cursors(config.database, pool.transaction)
        await pool.open()
        try:
            async with cursors.claim("c", "first"):
                opened = cursors.claim("c", "second")
            sessions = "select from pg_stat_activity where application_name = 'pipeline cursors' and datname = %s"
            name = log.info.dbname
            assert log.execute(sessions, [name]).rowcount == 1
            await cursors.close()
            eventually(lambda: log.execute(sessions, [name]).rowcount == 0)
            with pytest.raises(Unavailable, match="this server ends"):
                await opened.__aenter__()
        finally:
            await cursors.close()
            await pool.close()

    with psycopg.connect(config.database, autocommit=True) as log:
        log.execute("select pipeline.create_consumer('c', 'cursor')")
        asyncio.run(run(log))
