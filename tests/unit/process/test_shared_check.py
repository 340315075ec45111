"""An expensive answer that callers share, while it is found soon, late, or never."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest

from pipeline.process.shared_check import SharedCheck

PATIENCE = 60.0


def test_a_caller_gets_the_answer_before_if_the_next_one_is_late() -> None:
    numbers, released = itertools.count(1), threading.Event()
    released.set()

    def find() -> int:
        assert released.wait(PATIENCE)
        return next(numbers)

    async def ask() -> None:
        check = SharedCheck(find, 0)
        assert await check.result(0) == 1  # there is none before
        assert await check.result(PATIENCE) == 2
        released.clear()
        assert [await check.result(0), await check.result(0)] == [2, 2]
        released.set()
        assert await check.result() == 3

    asyncio.run(ask())


def test_callers_wait_no_longer_than_the_limit() -> None:
    released = threading.Event()

    async def ask() -> None:
        check = SharedCheck(lambda: released.wait(PATIENCE), 0, limit=0.05)
        try:
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await check.result()
        finally:
            released.set()

    asyncio.run(ask())
