"""Turns: few at once, in order, and woken ones alternate with others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from psycopg_pool import PoolTimeout

from pipeline.api import turns
from pipeline.api.turns import PageTurns


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


async def begun(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    return task


def test_woken_ones_alternate_with_others_each_in_order() -> None:
    served: list[str] = []

    async def serve(line: PageTurns, name: str) -> None:
        async with line.turn(woken=name.startswith("woken")):
            served.append(name)
            await asyncio.sleep(0)

    async def work() -> None:
        line = PageTurns(1)
        async with line.turn(woken=False):
            names = ["new 1", "new 2", "new 3", "new 4", "woken 1", "woken 2"]
            tasks = [await begun(serve(line, name)) for name in names]
            assert not served
        await asyncio.gather(*tasks)
        assert served == ["woken 1", "new 1", "woken 2", "new 2", "new 3", "new 4"]
        await serve(line, "last")

    run(work())


def test_there_are_never_more_turns_though_waiting_ones_are_cancelled() -> None:
    now = most = ended = 0

    async def serve(line: PageTurns, number: int) -> None:
        nonlocal now, most, ended
        async with line.turn(woken=number % 3 == 0):
            now += 1
            most = max(most, now)
            try:
                await asyncio.sleep(0)
            finally:
                now -= 1
            ended += 1

    async def work() -> None:
        line = PageTurns(2)
        tasks = [asyncio.create_task(serve(line, number)) for number in range(60)]
        for task in tasks[::4]:
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(serve(line, number) for number in range(10)))
        assert (now, most) == (0, 2)
        assert ended >= 45 + 10

    run(work())


def test_who_waits_too_long_is_told_so_and_takes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WAIT_SECONDS", 0.01)

    async def work() -> None:
        line = PageTurns(1)
        async with line.turn(woken=False):
            with pytest.raises(PoolTimeout):
                async with line.turn(woken=True):
                    pass
        async with line.turn(woken=True):
            pass

    run(work())
