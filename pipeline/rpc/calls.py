"""The running calls of a service, which can all be ended with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from pipeline.errors import PipelineError

T = TypeVar("T")
END_SECONDS = 1.0


class RunningCalls:
    """Runs the work of each call, until the work ends or all calls are ended."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._reason: asyncio.Future[Exception] | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work. Raises the reason of `end` if all calls are ended before the work is done."""
        if self._reason is None:
            self._reason = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(work)
        self._running.add(task)
        try:
            either: list[asyncio.Future[Any]] = [task, self._reason]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise self._reason.result()
        finally:
            self._running.discard(task)
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # the client has ended the call, so no other code reads its error

    async def end(self, reason: Exception) -> None:
        """End all calls, and every later one, with this reason; return when they have ended, or after a second."""
        if self._reason is None:
            self._reason = asyncio.get_running_loop().create_future()
        if not self._reason.done():
            self._reason.set_result(reason)
        if self._running:
            await asyncio.wait(self._running, timeout=END_SECONDS)


async def until_one_ends(ended: asyncio.Future[PipelineError], *works: Coroutine[Any, Any, None]) -> None:
    """Run all works at once until one of them is done or fails, then cancel the others.

    Raises the error of the work that failed, or the error of `ended` if that is set first.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        either: list[asyncio.Future[Any]] = [*tasks, ended]
        done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if ended in done:
        raise ended.result()
    for each in done:
        each.result()
