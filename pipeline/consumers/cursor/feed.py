"""The head of the log, read once for all followers; a follower that lags reads pages until it has caught up."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import psycopg
from psycopg.rows import TupleRow

from pipeline.consumers.cursor.frames import FRAME_BYTES, MAX_EVENTS
from pipeline.errors import DatabaseUnavailableError
from pipeline.log.page import EVERYTHING, EventFilter, EventPageReader, EventPageRequest, FilterableEvent, NumberedEvent
from pipeline.log.wakeups import WakeupListener
from pipeline.postgres import connections, session_settings

logger = logging.getLogger(__name__)

Connection = psycopg.AsyncConnection[TupleRow]
Connect = Callable[[], AbstractAsyncContextManager[Connection]]
"""Lends a connection for some statements, or for one transaction."""
RING_BYTES = 8_000_000
"""How much of the newest events is buffered, in characters; a follower that lags further reads pages."""
PAGE_READERS = 4
"""How many pages are read at the same time for all lagging followers."""
POLL_SECONDS = 2.0
"""How often the log is read although no notification came."""
_RETRY_SECONDS, _START_SECONDS = 0.5, 10.0


class FollowableEvent(NumberedEvent, FilterableEvent, Protocol):
    """An event in a shape that can be followed."""

    @property
    def size(self) -> int:
        """The characters it takes."""


E = TypeVar("E", bound=FollowableEvent)


@dataclass(frozen=True)
class Batch(Generic[E]):
    """The events that a filter wants, after `after`, up to `upto`; `whole`: no transaction continues after that.

    `next_rows`: how many to ask for next, so that no large events are read only to be discarded. `paged`: read for one
    follower that lags; only there may retention have dropped what follows `after`.
    """

    after: int
    upto: int
    entries: Sequence[E]
    whole: bool
    next_rows: int = MAX_EVENTS
    paged: bool = False
    found: dict[EventFilter, list[E]] = field(default_factory=dict, repr=False)

    def of(self, wanted: EventFilter) -> Batch[E]:
        """The part that a filter wants; computed once."""
        if wanted == EVERYTHING:
            return self
        if wanted not in self.found:
            self.found[wanted] = [entry for entry in self.entries if wanted.wants(entry)]
        return Batch(self.after, self.upto, self.found[wanted], self.whole)


class _Interest:
    """What followers with the same filter share: where it last matched an event, and what wakes them."""

    def __init__(self, since: int) -> None:
        self.newest = since
        self.users = 0
        self.changed = asyncio.Event()

    def wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class FeedFollower(Generic[E]):
    """One reader of the feed. `position`: it has everything up to there; also skips what its filter leaves out."""

    def __init__(self, feed: LogFeed[E], wanted: EventFilter, position: int) -> None:
        self._feed = feed
        self._filter = wanted
        self._position = position
        self._handed: Batch[E] | None = None
        self._rows = MAX_EVENTS
        self._unfinished = False

    @property
    def position(self) -> int:
        """The end of the last batch that was processed, or the head when nothing the filter wants came since."""
        if self._handed is None and not self._unfinished and self._feed.nothing_since(self._filter, self._position):
            self._position = self._feed.head
        return self._position

    async def batches(self) -> AsyncIterator[Batch[E]]:
        """Everything after `position`, in order, without end. Holds no connection while the caller uses a batch."""
        while True:
            batch = await self._next()
            self._handed = batch
            yield batch
            self._handed = None
            self._position = batch.upto

    async def _next(self) -> Batch[E]:
        while True:
            position = self.position
            if (batch := self._feed.buffered(self._filter, position)) is not None:
                self._unfinished = False
                return batch
            if position < self._feed.head or self._unfinished:
                page = await self._feed.page(position, self._filter, self._rows)
                self._rows = page.next_rows
                if page.upto > position or self._unfinished:
                    self._unfinished = not page.whole  # the feed wakes no one for the rest of a page's transaction
                    return page
            await self._feed.wait(self._filter)


class LogFeed(Generic[E]):
    """One per process, events table and shape. Reads the log only while there is a follower."""

    def __init__(self, dsn: str, wakeups: WakeupListener, lend: Connect, pages: EventPageReader[E], table: str) -> None:
        """`pages`: of the events table of this name, `schema.table`."""
        self.head = 0
        self._pages = pages
        self._table = table
        self._dsn = dsn
        self._wakeups = wakeups
        self._lend = lend
        self._ring: deque[Batch[E]] = deque()
        self._size = 0
        self._interests: dict[EventFilter, _Interest] = {}
        self._tail: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._readers = asyncio.Semaphore(PAGE_READERS)

    @asynccontextmanager
    async def follower(self, wanted: EventFilter, position: int) -> AsyncIterator[FeedFollower[E]]:
        """Follow the events that a filter wants after `position`.

        Raises DatabaseUnavailableError when the log cannot be read.
        """
        if self._tail is None:
            self._tail = asyncio.create_task(self._run(), name="feed")
        with self._interest(wanted):
            try:
                async with asyncio.timeout(_START_SECONDS):  # wait_for of Python 3.11 may swallow a cancellation
                    await self._started.wait()
            except TimeoutError:
                raise DatabaseUnavailableError("the log cannot be read now; connect again") from None
            yield FeedFollower(self, wanted, position)

    def nothing_since(self, wanted: EventFilter, position: int) -> bool:
        """Whether the filter wants no event from there to the head, as far as is known without reading."""
        return self._interests[wanted].newest <= position < self.head

    def buffered(self, wanted: EventFilter, position: int) -> Batch[E] | None:
        """The next batch after a position; None when it is not buffered."""
        if not self._ring or not self._ring[0].after <= position < self.head:
            return None
        # Most followers are at the end of the buffer.
        batch = next(batch for batch in reversed(self._ring) if batch.after <= position)
        if batch.after < position:
            batch = Batch(position, batch.upto, [e for e in batch.entries if e.seq > position], batch.whole)
        return batch.of(wanted)

    async def page(self, after: int, wanted: EventFilter, rows: int) -> Batch[E]:
        """Read the next events that a filter wants, at most one frame of them."""
        async with self._readers, self._lend() as connection:
            return replace(await read_page(connection, self._pages, after, wanted, rows), paged=True)

    async def wait(self, wanted: EventFilter) -> None:
        """Wait until there may be new events for that filter."""
        await self._interests[wanted].changed.wait()

    @contextmanager
    def _interest(self, wanted: EventFilter) -> Iterator[None]:
        interest = self._interests.setdefault(wanted, _Interest(self.head))
        interest.users += 1
        try:
            yield
        finally:
            interest.users -= 1
            if not interest.users:
                del self._interests[wanted]
            if not self._interests:
                self._stop()

    def _stop(self) -> None:
        if self._tail is not None:
            self._tail.cancel()
        self._tail = None
        self._started = asyncio.Event()
        self._ring.clear()
        self._size = 0

    async def _run(self) -> None:
        while not self._wakeups.closing:
            try:
                async with await connections.connect_async(
                    self._dsn, name="pipeline feed", settings=session_settings.SERVER
                ) as connection:
                    await self._read_head(connection)
            except (psycopg.Error, OSError) as error:
                lost = connections.unavailable(self._dsn, "pipeline database", error)
                logger.warning("the log cannot be read: %s", lost, extra={"action": "feed.lost"})
            except Exception:
                logger.exception("the log cannot be read", extra={"action": "feed.failed"})
            await asyncio.sleep(_RETRY_SECONDS)
        self._started.set()  # a new follower is about to be told that the server ends

    async def _read_head(self, connection: Connection) -> None:
        with self._wakeups.for_events(table=self._table) as subscription:
            if not self._started.is_set():
                self._begin(await self._pages.newest_async(connection))
            rows = MAX_EVENTS
            while not subscription.closing:
                batch = await read_page(connection, self._pages, self.head, EVERYTHING, rows)
                rows = batch.next_rows
                if batch.upto > self.head:
                    self._append(batch)
                if batch.whole:
                    await subscription.wait(POLL_SECONDS)

    def _begin(self, head: int) -> None:
        self.head = head
        for interest in self._interests.values():
            interest.newest = head
        self._started.set()

    def _append(self, batch: Batch[E]) -> None:
        continues = bool(self._ring) and not self._ring[-1].whole
        self._ring.append(batch)
        self._size += _size(batch)
        while self._size > RING_BYTES and len(self._ring) > 1:
            self._size -= _size(self._ring.popleft())
        self.head = batch.upto
        for wanted, interest in self._interests.items():
            if continues or batch.of(wanted).entries:
                interest.newest = batch.upto
                interest.wake()


async def read_page(
    connection: Connection, pages: EventPageReader[E], after: int, wanted: EventFilter, rows: int
) -> Batch[E]:
    """The next events after a seq, at most `rows` and at most one frame; `upto` is `after` when there are none."""
    page = await pages.read_async(connection, EventPageRequest(after, rows, FRAME_BYTES, wanted))
    return Batch(after, page.upto, page.entries, page.at_head, min(page.next_rows, MAX_EVENTS))


def _size(batch: Batch[E]) -> int:
    return sum(entry.size for entry in batch.entries) + 200 * len(batch.entries)
