"""`AsyncQueue`, a `Queue` for programs on asyncio: `async for item in queue: with item: …`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType

from pipeline.client.held_items import Item
from pipeline.client.pump import QueuePump, raise_error
from pipeline.client.queue import held_items
from pipeline.client.sigterm import SigtermHandler


class AsyncQueue:
    """A `Queue` for programs on asyncio, which runs a task in one event loop. Do not await the methods of its items.

    Close the queue, or use `async with queue:`. Otherwise prefetched items are delivered again only when their
    visibility ends.
    """

    def __init__(
        self,
        dsn: str,
        consumer: str,
        *,
        ahead: int = 100,
        visibility: float | None = None,
        wait: float | None = None,
        on_sigterm: bool = True,
    ) -> None:
        """Prepare the queue, which connects at the first item. `dsn`: libpq URI or key=value."""
        self._held = held_items(ahead, visibility)
        self._news = asyncio.Event()
        self._pump = QueuePump(dsn, consumer, self._held, self._news.set)
        self._wait = wait
        self._on_sigterm = on_sigterm
        self._sigterm: SigtermHandler | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncQueue:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._end()
        if error is not self._pump.error:  # else the program gets it already
            raise_error(self._pump.error)

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        held = self._held
        if self._task is None and not held.stopping:
            self._sigterm = SigtermHandler(self._pump.stop) if self._on_sigterm else None
            self._task = asyncio.create_task(self._pump.run())
        item = None if held.stopping else held.take_item()
        if item is None:
            item = await self._next()
        elif held.is_low:
            self._pump.wake()
            await asyncio.sleep(
                0
            )  # the pump runs in this event loop, which a program that awaits nothing would never leave to it
        if item is None:
            raise StopAsyncIteration
        return item

    def stop(self) -> None:
        """End the loop after the current item, and give the other items back; see `Queue.stop`."""
        self._pump.stop()

    async def close(self) -> None:
        """Finish all acknowledgements and refusals, and give back prefetched items; see `Queue.close`."""
        await self._end()
        raise_error(self._pump.error)

    async def _end(self) -> None:
        self._held.stopping = True
        if self._task is not None:
            self._pump.close()
            await asyncio.shield(self._task)
        if self._sigterm is not None:
            self._sigterm.restore()

    async def _next(self) -> Item | None:
        """Wait for the next item; None: the program's loop must end."""
        held, until = self._held, None if self._wait is None else time.monotonic() + self._wait
        held.waiting = True
        self._pump.wake()
        try:
            while not (held.stopping or self._pump.has_ended):
                self._news.clear()
                if (item := held.take_item()) is not None:
                    return item
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0 and held.nothing_left:
                    return None
                with suppress(TimeoutError):
                    async with asyncio.timeout(left if left is None or left > 0 else None):
                        await self._news.wait()
        finally:
            held.waiting = False
        raise_error(self._pump.error)
        return None
