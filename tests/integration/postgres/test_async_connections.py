"""Connections for asyncio are closed, however the task that uses them ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg
import pytest

from pipeline.postgres import connections, session_settings


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a loop that has been busy: each step gives others a turn, also one that waits for nothing."""
    monkeypatch.setattr(psycopg.waiting, "MAX_BUSY_TIME", -1.0)


@pytest.mark.parametrize("ends", ["by itself", "cancelled"])
@pytest.mark.parametrize("turns", range(4))
def test_one_is_closed_though_its_task_is_cancelled_as_it_ends(database_dsn: str, ends: str, turns: int) -> None:
    async def run() -> None:
        opened: asyncio.Future[connections.AsyncConnection] = asyncio.get_running_loop().create_future()
        leave = asyncio.Event()

        async def use() -> None:
            settings = session_settings.SERVER
            async with await connections.connect_async(database_dsn, name="test", settings=settings) as connection:
                opened.set_result(connection)
                await leave.wait()

        task = asyncio.create_task(use())
        connection = await opened
        if ends == "cancelled":
            task.cancel()
        leave.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert connection.closed

    asyncio.run(run())
