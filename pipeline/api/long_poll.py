"""Long polls: search, wait for a notification or some time, and search again, until there is a result.

The end of the request's time, and the client's disconnect, also end a long poll.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from fastapi import Request

from pipeline.log.wakeups import WakeupSubscription

MAX_SECONDS = 60
"""The most seconds that a client may ask the server to wait."""
_MIN_WAIT, _MAX_WAIT = 0.02, 1.0
"""The shortest and the longest wait, in seconds, after a search at the time that `due` gave has found nothing."""
T = TypeVar("T")


class ClientGoneError(Exception):
    """The client has disconnected; work that was begun for its request must be rolled back."""


class WaitingClient:
    """The client of a request. Call `require_connected` immediately before items are delivered."""

    def __init__(self) -> None:
        self.gone = False

    def require_connected(self) -> None:
        """Raise ClientGoneError if the client has disconnected."""
        if self.gone:
            raise ClientGoneError


@asynccontextmanager
async def _watched(request: Request, subscription: WakeupSubscription) -> AsyncIterator[WaitingClient]:
    """Yield the client, and notify the subscription when the client disconnects. The body must have been read."""
    client = WaitingClient()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            continue
        client.gone = True
        subscription.notify()

    task = asyncio.create_task(watch())
    try:
        await asyncio.sleep(0)  # notices a client that has disconnected already
        yield client
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until_found(
    request: Request,
    subscription: WakeupSubscription,
    seconds: float,
    find: Callable[[WaitingClient], Awaitable[T | None]],
    due: Callable[[], Awaitable[float | None]],
) -> T | None:
    """Call `find` until it returns a result; return None after `seconds`, or if the server is stopping.

    `due` returns the seconds until a result may appear without a notification; None: never. Raises ClientGoneError.
    """
    deadline = time.monotonic() + seconds
    min_wait = _MIN_WAIT
    async with _watched(request, subscription) as client:
        while True:
            client.require_connected()
            found = await find(client)
            left = deadline - time.monotonic()
            if found is not None or left <= 0 or subscription.closing:
                return found
            due_in = await due()
            if await subscription.wait(left if due_in is None else min(left, max(due_in, min_wait))):
                min_wait = _MIN_WAIT
            else:
                min_wait = min(min_wait * 2, _MAX_WAIT)
