"""Lets only a few requests read a page at the same time, and decides which one is next.

Requests that were woken after a wait do not have to wait for all new requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg_pool import PoolTimeout

WAIT_SECONDS = 5.0
"""The most seconds that a request waits for its turn, and then again for a connection."""


class PageTurns:
    """At most `most` requests have a turn at once. The oldest woken request and the oldest other one alternate."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: tuple[deque[asyncio.Future[None]], deque[asyncio.Future[None]]] = (deque(), deque())
        self._was_woken = False

    @asynccontextmanager
    async def turn(self, *, woken: bool) -> AsyncIterator[None]:
        """Wait for a turn, which lasts as long as the block. Raises PoolTimeout."""
        await self._wait(woken=woken)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, *, woken: bool) -> None:
        if self._free:
            self._free -= 1
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting[woken].append(mine)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await mine
        except BaseException as error:
            if mine.done() and not mine.cancelled():  # the turn came at the same moment
                self._pass_on()
            if isinstance(error, TimeoutError):
                raise PoolTimeout(f"the request had to wait more than {WAIT_SECONDS:g} s for its turn") from None
            raise

    def _pass_on(self) -> None:
        for woken in (not self._was_woken, self._was_woken):
            while self._waiting[woken]:
                if not (next_one := self._waiting[woken].popleft()).done():
                    next_one.set_result(None)
                    self._was_woken = woken
                    return
        self._free += 1
