"""Long polls: look, wait for a notification or a time, look again; until something is found or the client is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from fastapi import Request

from pipeline.readers.wakeups import Subscription

MAX_SECONDS = 60
"""The longest that a client may ask us to wait."""
_SHORTEST, _LONGEST = 0.02, 1.0
"""Bounds of the wait for a time that has come without giving anything."""
T = TypeVar("T")


class Gone(Exception):
    """The client has hung up; what was begun for it is rolled back."""


class Client:
    """Who asked. `require_there` is for the last moment before something is handed out."""

    def __init__(self) -> None:
        self.gone = False

    def require_there(self) -> None:
        """Raises Gone."""
        if self.gone:
            raise Gone


@asynccontextmanager
async def _watched(request: Request, subscription: Subscription) -> AsyncIterator[Client]:
    """The client while it waits; when it hangs up the subscription is rung. The body must have been read."""
    client = Client()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            continue
        client.gone = True
        subscription.notify()

    task = asyncio.create_task(watch())
    try:
        await asyncio.sleep(0)  # one that has gone already is seen now
        yield client
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until_found(
    request: Request,
    subscription: Subscription,
    seconds: float,
    look: Callable[[Client], Awaitable[T | None]],
    due: Callable[[], Awaitable[float | None]],
) -> T | None:
    """What `look` finds at last; None after `seconds`, or when the server is about to end. Raises Gone.

    `due` says in how many seconds something will be there that nobody rings for; None: nothing waits for time.
    """
    deadline = time.monotonic() + seconds
    shortest = _SHORTEST
    async with _watched(request, subscription) as client:
        while True:
            client.require_there()
            found = await look(client)
            left = deadline - time.monotonic()
            if found is not None or left <= 0 or subscription.closing:
                return found
            comes = await due()
            if await subscription.wait(left if comes is None else min(left, max(comes, shortest))):
                shortest = _SHORTEST
            else:
                shortest = min(shortest * 2, _LONGEST)
