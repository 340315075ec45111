"""Waiters are woken by NOTIFY, also after the LISTEN connection was cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
import pytest

from pipeline.log.wakeups import WakeupListener
from tests.fixtures.waiting import eventually

Test = Callable[[WakeupListener, psycopg.Connection], Coroutine[Any, Any, None]]


@pytest.fixture
def within(database_dsn: str) -> Callable[[Test], None]:
    """Runs a coroutine with wakeups that listen, and a connection to say things."""

    async def run(test: Test) -> None:
        with psycopg.connect(database_dsn, autocommit=True) as log:
            async with listening(WakeupListener(database_dsn, "public.sequin_events", 1)) as wakeups:
                await test(wakeups, log)

    return lambda test: asyncio.run(run(test))


@asynccontextmanager
async def listening(wakeups: WakeupListener) -> AsyncIterator[WakeupListener]:
    with wakeups.for_consumer("first") as subscription:
        task = asyncio.create_task(wakeups.run())
        assert await subscription.wait(60)  # a subscriber from before the LISTEN is woken
    try:
        yield wakeups
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_each_hears_its_own(within: Callable[[Test], None]) -> None:
    async def test(wakeups: WakeupListener, log: psycopg.Connection) -> None:
        with wakeups.for_consumer("a") as a, wakeups.for_consumer("b") as b, wakeups.for_events("b") as events:
            log.execute("notify pipeline_consumers, 'a'")
            assert await a.wait(60)
            assert not await b.wait(0)
            assert not await events.wait(0)
            log.execute("notify pipeline_consumers, 'b'")
            assert await b.wait(60) and await events.wait(60)
            log.execute("""notify sequin_events, '{"table": "public.sequin_events", "seq": 1}'""")
            assert await events.wait(60)
            assert not await a.wait(0)

    within(test)


def test_another_events_table_is_not_ours(within: Callable[[Test], None]) -> None:
    async def test(wakeups: WakeupListener, log: psycopg.Connection) -> None:
        with wakeups.for_events() as events, wakeups.for_consumer("after") as after:
            log.execute("""notify sequin_events, '{"table": "public.others", "seq": 1}'""")
            log.execute("notify pipeline_consumers, 'after'")
            assert await after.wait(60)
            assert not await events.wait(0)

    within(test)


def test_a_payload_that_is_nested_too_deeply_ends_no_wakeup(within: Callable[[Test], None]) -> None:
    async def test(wakeups: WakeupListener, log: psycopg.Connection) -> None:
        with wakeups.for_events() as events, wakeups.for_consumer("after") as after:
            for payload in ("[" * 7_900, '{"table":' * 800, '{"table": ' + "[" * 900 + "]" * 900 + "}", '{"table": 1}'):
                log.execute("select pg_notify('sequin_events', %s)", [payload])
                assert await events.wait(60), "what names no table may concern all"
            log.execute("notify pipeline_consumers, 'after'")
            assert await after.wait(60)

    within(test)


def test_what_comes_before_the_wait_is_not_missed(within: Callable[[Test], None]) -> None:
    async def test(wakeups: WakeupListener, log: psycopg.Connection) -> None:
        with wakeups.for_consumer("a") as early, wakeups.for_consumer("a") as late:
            log.execute("notify pipeline_consumers, 'a'")
            assert await early.wait(60)
            assert await late.wait(0)
            assert not await late.wait(0)

    within(test)


def test_all_are_woken_when_the_connection_was_cut(within: Callable[[Test], None]) -> None:
    async def test(wakeups: WakeupListener, log: psycopg.Connection) -> None:
        with wakeups.for_consumer("a") as a, wakeups.for_events() as events:
            log.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name like 'pipeline wakeup%' and datname = current_database()"
            )
            assert await a.wait(60) and await events.wait(60)
            eventually(lambda: log.execute("notify pipeline_consumers, 'a'") is not None)
            assert await a.wait(60)

    within(test)


def test_nobody_waits_while_the_process_ends(within: Callable[[Test], None]) -> None:
    async def test(wakeups: WakeupListener, _log: psycopg.Connection) -> None:
        with wakeups.for_consumer("a") as subscription:
            waiting = asyncio.create_task(subscription.wait(60))
            await asyncio.sleep(0)
            wakeups.close()
            assert await waiting and subscription.closing

    within(test)


def test_a_bell_that_is_put_away_is_forgotten(within: Callable[[Test], None]) -> None:
    async def test(wakeups: WakeupListener, _log: psycopg.Connection) -> None:
        with wakeups.for_events("a"), wakeups.for_consumer("a"):
            assert wakeups._subscriptions
        assert not wakeups._subscriptions

    within(test)
