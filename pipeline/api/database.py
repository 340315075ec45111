"""Dependencies of endpoints: the pool of connections to the pipeline database, and the listener that wakes requests.

A dependency is a coroutine: FastAPI calls any other function in a thread, which takes longer than a page of events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, TypeVar

import anyio.to_thread
from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError
from pipeline.log.wakeups import WakeupListener
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.postgres.pool import Pool

T = TypeVar("T")
SESSION_SECONDS = 5.0
"""Seconds in which the pipeline database must accept a session for a request, and then answer it."""
_SESSIONS = threading.BoundedSemaphore(4)
"""Limits the sessions that requests have at the same time, besides the pool."""


async def in_thread(request: Request, work: Callable[[], T], *, source_too: bool = False) -> T:
    """Run blocking work in a thread and return its result. Raises DatabaseSilentError if the database goes silent.

    `source_too`: also raise this error if the source goes silent. In both cases the work continues in its thread.
    """
    running = request.app.state.database.silence.unless_silent(anyio.to_thread.run_sync(work, abandon_on_cancel=True))
    found: T = await (request.app.state.source_silence.unless_silent(running) if source_too else running)
    return found


@contextmanager
def session(config: Config, seconds: float | None = None) -> Iterator[Connection]:
    """Yield a new session of the pipeline database for one request.

    Connecting may take SESSION_SECONDS, and the block `seconds`, by default as many; then DatabaseUnavailableError is
    raised.
    """
    if not _SESSIONS.acquire(timeout=SESSION_SECONDS):
        raise DatabaseUnavailableError("too many requests at once; try again later")
    try:
        given = seconds or SESSION_SECONDS
        with connections.answering(config.database, "pipeline database", given, name="pipeline api") as pipeline:
            yield pipeline
    finally:
        _SESSIONS.release()


async def in_session(request: Request, work: Callable[[Connection], T], seconds: float | None = None) -> T:
    """Run blocking work in a thread, over a `session`."""

    def connected() -> T:
        with session(request.app.state.config, seconds) as pipeline:
            return work(pipeline)

    return await in_thread(request, connected)


async def _database(connection: HTTPConnection) -> Pool:
    found: Pool = connection.app.state.database
    return found


async def _wakeups(connection: HTTPConnection) -> WakeupListener:
    found: WakeupListener = connection.app.state.wakeups
    return found


TheDatabase = Annotated[Pool, Depends(_database)]
TheWakeups = Annotated[WakeupListener, Depends(_wakeups)]
