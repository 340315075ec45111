"""Finds out whether a database is silent: frozen, or cut off without a word. Then a request need not wait for it.

A slow statement says nothing about that, so a new connection is tried: a database that lives lets it in at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import psycopg

from pipeline.errors import DatabaseSilentError
from pipeline.postgres import connections, session_settings

T = TypeVar("T")
PATIENCE_SECONDS = 2.0
"""How long a request waits for a database before it is tried whether that is silent; then again each time."""
TRY_SECONDS = 4.0
"""How long a database has to let a new connection in. With twice the patience that is less than 10 seconds."""


class SilenceProbe:
    """Tries one database, once for all who ask at the same time. For one event loop."""

    def __init__(self, dsn: str, what: str) -> None:
        """`what`: the database as messages name it."""
        self._dsn = dsn
        self._what = what
        self._trying: asyncio.Task[bool] | None = None

    @property
    def error(self) -> DatabaseSilentError:
        """What a client is told that waited for it."""
        return DatabaseSilentError(f"the {self._what} does not answer; try again later")

    async def is_silent(self) -> bool:
        """Return True if the database lets nobody in. One that refuses a connection is not silent."""
        if self._trying is None or self._trying.done():
            self._trying = asyncio.create_task(self._try())
        return await asyncio.shield(self._trying)

    async def _try(self) -> bool:
        try:
            async with asyncio.timeout(TRY_SECONDS):
                settings = session_settings.of_database(self._what)
                async with await connections.connect_async(self._dsn, name="pipeline look", settings=settings):
                    return False
        except (psycopg.Error, OSError) as error:
            return isinstance(error, TimeoutError | psycopg.errors.ConnectionTimeout)

    async def unless_silent(self, work: Awaitable[T], unused: Callable[[T], object] = lambda _: None) -> T:
        """Return what the work returns. Raises DatabaseSilentError once the database turns out to be silent meanwhile.

        The work is then cancelled, and nothing waits for its end. `unused` gets a result that nothing takes any more.
        """
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=PATIENCE_SECONDS))[0]:
                if await self.is_silent() and not task.done():
                    raise self.error
        except BaseException:
            task.add_done_callback(partial(_forget, unused))
            task.cancel()
            raise
        return task.result()


def _forget(unused: Callable[[T], object], task: asyncio.Future[T]) -> None:
    """Take the error of work that nothing waits for, or asyncio logs it; its result goes to `unused`."""
    if not task.cancelled() and task.exception() is None:
        unused(task.result())
