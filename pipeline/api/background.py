"""Blocking work in threads that nobody has to wait for: neither a client that has gone, nor the end of the server."""

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
"""Of the threads."""


class BackgroundThreads:
    """At most `most` pieces of work at once."""

    def __init__(self, most: int) -> None:
        self._room = threading.BoundedSemaphore(most)
        self._waited: set[Future[Any]] = set()
        self._closed = False

    async def run(self, work: Callable[[], T], unused: Callable[[T], None]) -> T:
        """Return what `work` returns, or raise its error.

        Raises DatabaseUnavailableError if too much work waits, and after `close`.

        `unused` gets, in the thread, a result for which nobody waits any more.
        """
        self._require_open()
        if not self._room.acquire(blocking=False):
            raise DatabaseUnavailableError("too many others wait for the same; try again later")
        future: Future[T] = Future()
        self._waited.add(future)
        threading.Thread(target=self._work, args=(future, work, unused), name=NAME, daemon=True).start()
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or not task.cancelling():
                self._require_open()  # it is the future that was cancelled
            raise
        finally:
            self._waited.discard(future)

    def _require_open(self) -> None:
        if self._closed:
            raise DatabaseUnavailableError("the server is stopping")

    def close(self) -> None:
        """Let nobody wait any more; work that has begun goes on in its thread."""
        self._closed = True
        for future in list(self._waited):
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
        """Whoever waits may come again as soon as it has the result."""
        try:
            return work()
        finally:
            self._room.release()
