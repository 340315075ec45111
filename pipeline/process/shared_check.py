"""Finds an expensive answer once for all callers that ask at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedCheck(Generic[T]):
    """Calls `check` in a thread, one call at a time, and shares each answer for `seconds`."""

    def __init__(
        self, check: Callable[[], T], seconds: float, executor: Executor | None = None, limit: float | None = None
    ) -> None:
        """Without an executor, the event loop's own threads are used. After `limit` seconds, callers wait no longer."""
        self._check = check
        self._executor = executor
        self._seconds = seconds
        self._limit = limit
        self._task: asyncio.Task[T] | None = None
        self._before: asyncio.Task[T] | None = None
        self._ended = float("-inf")

    async def result(self, patience: float | None = None) -> T:
        """Return the answer, or the one before if the search takes longer than `patience` seconds.

        Raises TimeoutError after the limit. If a caller is cancelled, the search continues, since other callers may
        wait for it.
        """
        if self._task is None or (self._task.done() and time.monotonic() - self._ended >= self._seconds):
            self._before, self._task = self._task, asyncio.create_task(self._run())
            self._task.add_done_callback(_take_error)  # callers may have gone by then
        task = self._task
        if patience is not None and self._before is not None:
            done, _ = await asyncio.wait({task}, timeout=patience)
            task = task if done else self._before
        return await asyncio.shield(task)

    async def _run(self) -> T:
        try:
            async with asyncio.timeout(self._limit):
                return await asyncio.get_running_loop().run_in_executor(self._executor, self._check)
        finally:
            self._ended = time.monotonic()


def _take_error(task: asyncio.Task[T]) -> None:
    """Let the event loop not report an error that no caller has waited for."""
    if not task.cancelled():
        task.exception()
