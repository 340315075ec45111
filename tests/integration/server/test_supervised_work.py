"""Threads and tasks of a server survive unexpected errors: they start again, or what they hold is lost cleanly."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
from datetime import datetime

import psycopg
import pytest
from apscheduler.events import EVENT_JOB_MAX_INSTANCES
from apscheduler.triggers.interval import IntervalTrigger

from pipeline import logs
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.consumers.cursor import claims
from pipeline.consumers.cursor.leases import CursorLeases
from pipeline.errors import DatabaseUnavailableError
from pipeline.operate import metrics, readiness, status
from pipeline.postgres import role_locks
from pipeline.postgres.pool import Pool
from pipeline.process import supervised
from pipeline.process.signals import StopSignal
from pipeline.rpc.presence import ROLE, RolePresence
from pipeline.server import schedule
from pipeline.server.leadership import LeaderElection
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
    presence = RolePresence(config, "test:1")
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
        cursors = CursorLeases(config.database, pool.transaction)
        await pool.open()
        try:
            await claim_twice(log, cursors)
        finally:
            await cursors.close()
            await pool.close()

    async def claim_twice(log: psycopg.Connection, cursors: CursorLeases) -> None:
        async with cursors.claim("c", "first") as claim:
            log.execute("update pipeline.consumers set position = null")
            assert isinstance(await asyncio.wait_for(claim.ended, 60), DatabaseUnavailableError)
            log.execute("update pipeline.consumers set position = 0")
        async with cursors.claim("c", "second") as claim:
            await cursors.advance(claim, 0)

    with psycopg.connect(config.database, autocommit=True) as log:
        log.execute("select pipeline.create_consumer('c', 'cursor')")
        log.execute("alter table pipeline.consumers alter position drop not null")
        asyncio.run(run(log))


class _StopOfTest(StopSignal):
    """A stop without signal handlers."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def __bool__(self) -> bool:
        return self.ended.is_set()

    def wait(self, seconds: float) -> bool:
        return self.ended.wait(seconds)


def test_a_schedule_that_fails_is_shown_until_it_runs_again(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "SAMPLE_SECONDS", 0.1)
    stop = _StopOfTest()
    with psycopg.connect(config.database, autocommit=True) as holder, psycopg.connect(config.database) as log:
        assert role_locks.try_acquire(holder, "schedule")

        def report(reason: str | None) -> None:
            role_locks.report(holder, "schedule", "test:1", 1, "running", reason)

        def shown() -> tuple[list[str], bool, bool]:
            with psycopg.connect(config.database, autocommit=True) as asking:
                now = status.read(config, asking)
            is_in_metrics = b'pipeline_schedule_failed{schedule="sample"} 1.0' in metrics.render(now)
            found = readiness.check_readiness(config, "test:1", "schedule")
            is_in_readiness = any(each.startswith("sample: ") for each in found.schedules) and not found.reasons
            return [name for name in now.failed_schedules if name == "sample"], is_in_metrics, is_in_readiness

        log.execute("alter table pipeline.lag_samples rename to away")
        log.commit()
        thread = threading.Thread(target=schedule.run, args=(config, holder, stop, report))
        thread.start()
        try:
            eventually(lambda: shown() == (["sample"], True, True))
            log.execute("alter table pipeline.away rename to lag_samples")
            log.commit()
            eventually(lambda: shown() == ([], False, False))
        finally:
            stop.ended.set()
            thread.join()


def test_a_server_competes_for_the_lead_after_an_unexpected_error() -> None:
    called = threading.Semaphore(0)

    def revive() -> None:
        called.release()
        raise ValueError("the database cannot be revived")

    with LeaderElection("host=/nowhere", "a name", revive) as leads:
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


def test_the_schedule_skips_a_job_that_still_runs_in_silence(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", printed)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    skipped, ending = threading.Semaphore(0), threading.Event()
    scheduler = schedule.planned(config, lambda: True)
    scheduler.remove_all_jobs()
    scheduler.add_listener(lambda _: skipped.release(), EVENT_JOB_MAX_INSTANCES)
    scheduler.add_job(ending.wait, "interval", seconds=0.01)
    logs.setup("info", "text", "schedule")
    scheduler.start()
    try:
        assert skipped.acquire(timeout=60) and skipped.acquire(timeout=60)
    finally:
        ending.set()
        scheduler.shutdown()
    assert printed.getvalue() == ""


def test_closed_cursors_leave_no_session_and_none_can_be_claimed(config: Config) -> None:
    async def run(log: psycopg.Connection) -> None:
        pool = Pool(config.database, "test")
        cursors = CursorLeases(config.database, pool.transaction)
        await pool.open()
        try:
            async with cursors.claim("c", "first"):
                opened = cursors.claim("c", "second")
            sessions = "select from pg_stat_activity where application_name = 'pipeline cursors' and datname = %s"
            name = log.info.dbname
            assert log.execute(sessions, [name]).rowcount == 1
            await cursors.close()
            eventually(lambda: log.execute(sessions, [name]).rowcount == 0)
            with pytest.raises(DatabaseUnavailableError, match="this server ends"):
                await opened.__aenter__()
        finally:
            await cursors.close()
            await pool.close()

    with psycopg.connect(config.database, autocommit=True) as log:
        log.execute("select pipeline.create_consumer('c', 'cursor')")
        asyncio.run(run(log))
