"""Work in threads: results, room, and what becomes of it if no caller waits any longer."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pipeline.api.background import BackgroundThreads
from pipeline.errors import DatabaseUnavailableError

SECONDS = 30


class Work:
    """Return "made" once it is let go. `unused`: results without a waiting caller."""

    def __init__(self) -> None:
        self.begun, self.go, self.thrown = threading.Event(), threading.Event(), threading.Event()
        self.unused: list[str] = []

    def __call__(self) -> str:
        self.begun.set()
        assert self.go.wait(SECONDS)
        return "made"

    def throw(self, result: str) -> None:
        self.unused.append(result)
        self.thrown.set()


async def begun(background: BackgroundThreads, work: Work) -> asyncio.Task[str]:
    task = asyncio.create_task(background.run(work, work.throw))
    assert await asyncio.to_thread(work.begun.wait, SECONDS)
    return task


def test_what_it_returns_and_what_it_raises() -> None:
    async def both() -> None:
        background, work = BackgroundThreads(1), Work()
        task = await begun(background, work)
        work.go.set()
        assert await task == "made"
        with pytest.raises(ZeroDivisionError):
            await background.run(lambda: 1 // 0, print)
        assert not work.unused

    asyncio.run(both())


def test_there_is_room_for_so_much_and_again_when_it_is_done() -> None:
    async def full() -> None:
        background, work = BackgroundThreads(1), Work()
        task = await begun(background, work)
        with pytest.raises(DatabaseUnavailableError, match="too many requests wait for the same work"):
            await background.run(lambda: "second", work.unused.append)
        work.go.set()
        await task
        assert await background.run(lambda: "third", work.unused.append) == "third"

    asyncio.run(full())


def test_closing_ends_the_waiting_and_what_is_made_later_is_thrown_away() -> None:
    async def closing(work: Work) -> None:
        background = BackgroundThreads(1)
        task = await begun(background, work)
        background.close()
        with pytest.raises(DatabaseUnavailableError, match="the server is stopping"):
            await task
        with pytest.raises(DatabaseUnavailableError, match="the server is stopping"):
            await background.run(lambda: "more", work.unused.append)

    work = Work()
    asyncio.run(closing(work))  # which does not wait for the thread
    work.go.set()
    assert work.thrown.wait(SECONDS)
    assert work.unused == ["made"]


def test_whoever_is_cancelled_is_not_told_that_the_server_stops() -> None:
    async def cancelled(work: Work) -> None:
        task = await begun(BackgroundThreads(1), work)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    work = Work()
    asyncio.run(cancelled(work))
    work.go.set()
    assert work.thrown.wait(SECONDS)
