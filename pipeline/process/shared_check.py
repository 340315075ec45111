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

    def __init__(self, check: Callable[[], T], seconds: float, executor: Executor | None = None) -> None:
        """Without an executor, the event loop's own threads are used."""
        self._check = check
        self._executor = executor
        self._seconds = seconds
        self._task: asyncio.Task[T] | None = None
        self._ended = float("-inf")

    async def result(self) -> T:
        """Return the answer. If a caller is cancelled, the search continues, since other callers may wait for it."""
        if self._task is None or (self._task.done() and time.monotonic() - self._ended >= self._seconds):
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(_take_error)  # callers may have gone by then
        return await asyncio.shield(self._task)

    async def _run(self) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, self._check)
        finally:
            self._ended = time.monotonic()


def _take_error(task: asyncio.Task[T]) -> None:
    """Let the event loop not report an error that no caller has waited for."""
    if not task.cancelled():
        task.exception()
