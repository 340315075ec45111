"""Detecting a silent database, which is frozen or cut off from the network, so that no request waits for it.

A slow statement does not prove silence, so the probe opens a new connection: a working database accepts it at once.
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
"""Seconds that a request waits for a database before each probe."""
TRY_SECONDS = 4.0
"""Seconds that a database has to accept a new connection. With twice the patience that is less than 10 seconds."""


class SilenceProbe:
    """Probes one database, once for all callers at the same time. It belongs to one event loop."""

    def __init__(self, dsn: str, what: str) -> None:
        """Describe the database. `what`: what messages call it."""
        self._dsn = dsn
        self._what = what
        self._trying: asyncio.Task[bool] | None = None

    @property
    def error(self) -> DatabaseSilentError:
        """The error for a client that waited for the database."""
        return DatabaseSilentError(f"the {self._what} does not answer; try again later")

    async def is_silent(self) -> bool:
        """True if the database neither accepts nor refuses a new connection. One that refuses it is not silent."""
        if self._trying is None or self._trying.done():
            self._trying = asyncio.create_task(self._try())
        return await asyncio.shield(self._trying)

    async def _try(self) -> bool:
        try:
            async with asyncio.timeout(TRY_SECONDS):
                settings = session_settings.for_database(self._what)
                async with await connections.connect_async(self._dsn, name="pipeline probe", settings=settings):
                    return False
        except (psycopg.Error, OSError) as error:
            return isinstance(error, TimeoutError | psycopg.errors.ConnectionTimeout)

    async def unless_silent(self, work: Awaitable[T], unused: Callable[[T], object] = lambda _: None) -> T:
        """Return what the work returns. Raises DatabaseSilentError if the database is silent while the work runs.

        The work is then cancelled without waiting for its end. If it still returns a result, `unused` gets it.
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
    """Retrieve the error of abandoned work, which asyncio would log otherwise; its result goes to `unused`."""
    if not task.cancelled() and task.exception() is None:
        unused(task.result())
