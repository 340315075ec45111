"""Runs blocking work in threads. Neither a request whose client has gone nor the end of the server waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar

from pipeline.errors import DatabaseUnavailableError

T = TypeVar("T")
NAME = "background"
"""The name of every thread that runs blocking work."""


class BackgroundThreads:
    """Runs functions in threads, one thread each, at most `most` at once."""

    def __init__(self, most: int) -> None:
        self._free_places = threading.BoundedSemaphore(most)
        self._awaited: set[Future[Any]] = set()
        self._closed = False

    async def run(self, work: Callable[[], T], unused: Callable[[T], None]) -> T:
        """Return what `work` returns, or raise its error.

        `unused` gets the result, in the thread, if the caller no longer waits.

        Raises DatabaseUnavailableError if all threads are busy, and after `close`.
        """
        self._require_open()
        if not self._free_places.acquire(blocking=False):
            raise DatabaseUnavailableError("too many requests wait for the same work; try again later")
        future: Future[T] = Future()
        self._awaited.add(future)
        threading.Thread(target=self._work, args=(future, work, unused), name=NAME, daemon=True).start()
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or not task.cancelling():
                self._require_open()  # `close` has cancelled the future, not the caller's task
            raise
        finally:
            self._awaited.discard(future)

    def _require_open(self) -> None:
        if self._closed:
            raise DatabaseUnavailableError("the server is stopping")

    def close(self) -> None:
        """End the wait of every caller; work that has begun continues in its thread."""
        self._closed = True
        for future in list(self._awaited):
            future.cancel()

    def _work(self, future: Future[T], work: Callable[[], T], unused: Callable[[T], None]) -> None:
        try:
            result = self._done(work)
        except BaseException as error:
            with suppress(InvalidStateError):
                future.set_exception(error)
            return
        try:
            future.set_result(result)
        except InvalidStateError:
            unused(result)

    def _done(self, work: Callable[[], T]) -> T:
        """Do the work, and free its place before the caller gets the result and may run more work."""
        try:
            return work()
        finally:
            self._free_places.release()
