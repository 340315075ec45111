"""Reads the head of the log once for all followers; a follower that lags reads pages until it has caught up."""

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
"""Lends a connection for several statements, or for one transaction."""
RING_BYTES = 8_000_000
"""The most characters of the newest events that are buffered; a follower that lags further reads pages."""
PAGE_READERS = 4
"""The most pages that are read at the same time, for all lagging followers together."""
POLL_SECONDS = 2.0
"""Seconds without a notification after which the log is read."""
_RETRY_SECONDS, _START_SECONDS = 0.5, 10.0


class FollowableEvent(NumberedEvent, FilterableEvent, Protocol):
    """An event in a shape that can be followed."""

    @property
    def size(self) -> int:
        """The number of characters that the event takes."""


E = TypeVar("E", bound=FollowableEvent)


@dataclass(frozen=True)
class Batch(Generic[E]):
    """The events that a filter matches, after `after`, up to `upto`. `is_complete`: no transaction continues after it.

    `next_rows`: how many events to request next, so that no large events are read only to be discarded. `paged`: read
    for one follower that lags; only in such a batch may retention have dropped events after `after`.
    """

    after: int
    upto: int
    entries: Sequence[E]
    is_complete: bool
    next_rows: int = MAX_EVENTS
    paged: bool = False
    matches: dict[EventFilter, list[E]] = field(default_factory=dict, repr=False)

    def filter_by(self, wanted: EventFilter) -> Batch[E]:
        """Return the events that a filter matches; they are selected once for all followers with that filter."""
        if wanted == EVERYTHING:
            return self
        if wanted not in self.matches:
            self.matches[wanted] = [entry for entry in self.entries if wanted.wants(entry)]
        return Batch(self.after, self.upto, self.matches[wanted], self.is_complete)


class _FilterState:
    """The state of a filter for all its followers. `changed`: wakes them.

    `last_match`: the end of the last batch in which the filter matched an event.
    """

    def __init__(self, since: int) -> None:
        self.last_match = since
        self.followers = 0
        self.changed = asyncio.Event()

    def wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class FeedFollower(Generic[E]):
    """A reader of the feed."""

    def __init__(self, feed: LogFeed[E], wanted: EventFilter, position: int) -> None:
        self._feed = feed
        self._filter = wanted
        self._position = position
        self._in_use: Batch[E] | None = None
        self._next_rows = MAX_EVENTS
        self._is_inside_transaction = False

    @property
    def position(self) -> int:
        """The end of the last processed batch, or the head of the log if the filter has matched no event after it."""
        is_waiting = self._in_use is None and not self._is_inside_transaction
        if is_waiting and self._feed.has_nothing_since(self._filter, self._position):
            self._position = self._feed.head
        return self._position

    async def batches(self) -> AsyncIterator[Batch[E]]:
        """Yield the events after `position`, in order, without end. No connection is held while the caller works."""
        while True:
            batch = await self._next_batch()
            self._in_use = batch
            yield batch
            self._in_use = None
            self._position = batch.upto

    async def _next_batch(self) -> Batch[E]:
        while True:
            position = self.position
            if (batch := self._feed.find_buffered(self._filter, position)) is not None:
                self._is_inside_transaction = False
                return batch
            if position < self._feed.head or self._is_inside_transaction:
                page = await self._feed.read_page(position, self._filter, self._next_rows)
                self._next_rows = page.next_rows
                if page.upto > position or self._is_inside_transaction:
                    # The feed wakes no follower for the rest of a page's transaction.
                    self._is_inside_transaction = not page.is_complete
                    return page
            await self._feed.wait_for_events(self._filter)


class LogFeed(Generic[E]):
    """A feed of an events table, one for each process and shape. It reads the log only while there is a follower."""

    def __init__(self, dsn: str, wakeups: WakeupListener, lend: Connect, pages: EventPageReader[E], table: str) -> None:
        """`pages`: the reader of the events table. `table`: its name, `schema.table`."""
        self.head = 0
        self._pages = pages
        self._table = table
        self._dsn = dsn
        self._wakeups = wakeups
        self._lend = lend
        self._ring: deque[Batch[E]] = deque()
        self._size = 0
        self._filters: dict[EventFilter, _FilterState] = {}
        self._head_reader: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._readers = asyncio.Semaphore(PAGE_READERS)

    @asynccontextmanager
    async def follower(self, wanted: EventFilter, position: int) -> AsyncIterator[FeedFollower[E]]:
        """Yield a follower of the events that a filter matches after `position`.

        Raises DatabaseUnavailableError if the log cannot be read.
        """
        if self._head_reader is None:
            self._head_reader = asyncio.create_task(self._keep_reading_head(), name="feed")
        with self._registered(wanted):
            try:
                async with asyncio.timeout(_START_SECONDS):  # wait_for of Python 3.11 may swallow a cancellation
                    await self._started.wait()
            except TimeoutError:
                raise DatabaseUnavailableError("the log cannot be read now; connect again") from None
            yield FeedFollower(self, wanted, position)

    def has_nothing_since(self, wanted: EventFilter, position: int) -> bool:
        """Return True if the filter matches no event from `position` to the head, as far as known without reading."""
        return self._filters[wanted].last_match <= position < self.head

    def find_buffered(self, wanted: EventFilter, position: int) -> Batch[E] | None:
        """Return the next batch after a position; None if it is not buffered."""
        if not self._ring or not self._ring[0].after <= position < self.head:
            return None
        # Most followers are at the end of the buffer.
        batch = next(batch for batch in reversed(self._ring) if batch.after <= position)
        if batch.after < position:
            batch = Batch(position, batch.upto, [e for e in batch.entries if e.seq > position], batch.is_complete)
        return batch.filter_by(wanted)

    async def read_page(self, after: int, wanted: EventFilter, rows: int) -> Batch[E]:
        """Read the next events that a filter matches, at most one frame."""
        async with self._readers, self._lend() as connection:
            return replace(await read_page(connection, self._pages, after, wanted, rows), paged=True)

    async def wait_for_events(self, wanted: EventFilter) -> None:
        """Wait until there may be new events for that filter."""
        await self._filters[wanted].changed.wait()

    @contextmanager
    def _registered(self, wanted: EventFilter) -> Iterator[None]:
        state = self._filters.setdefault(wanted, _FilterState(self.head))
        state.followers += 1
        try:
            yield
        finally:
            state.followers -= 1
            if not state.followers:
                del self._filters[wanted]
            if not self._filters:
                self._stop()

    def _stop(self) -> None:
        if self._head_reader is not None:
            self._head_reader.cancel()
        self._head_reader = None
        self._started = asyncio.Event()
        self._ring.clear()
        self._size = 0

    async def _keep_reading_head(self) -> None:
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
        self._started.set()  # releases a new follower, whose stream then ends with the server

    async def _read_head(self, connection: Connection) -> None:
        with self._wakeups.for_events(table=self._table) as subscription:
            if not self._started.is_set():
                self._begin(await self._pages.newest_async(connection))
            rows = MAX_EVENTS
            while not subscription.closing:
                batch = await read_page(connection, self._pages, self.head, EVERYTHING, rows)
                rows = batch.next_rows
                if batch.upto > self.head:
                    self._append_batch(batch)
                if batch.is_complete:
                    await subscription.wait(POLL_SECONDS)

    def _begin(self, head: int) -> None:
        self.head = head
        for state in self._filters.values():
            state.last_match = head
        self._started.set()

    def _append_batch(self, batch: Batch[E]) -> None:
        continues = bool(self._ring) and not self._ring[-1].is_complete
        self._ring.append(batch)
        self._size += _batch_size(batch)
        while self._size > RING_BYTES and len(self._ring) > 1:
            self._size -= _batch_size(self._ring.popleft())
        self.head = batch.upto
        for wanted, state in self._filters.items():
            if continues or batch.filter_by(wanted).entries:
                state.last_match = batch.upto
                state.wake()


async def read_page(
    connection: Connection, pages: EventPageReader[E], after: int, wanted: EventFilter, rows: int
) -> Batch[E]:
    """Read the next events after a seq, at most `rows` and at most one frame; `upto` is `after` if there are none."""
    page = await pages.read_async(connection, EventPageRequest(after, rows, FRAME_BYTES, wanted))
    return Batch(after, page.upto, page.entries, page.at_head, min(page.next_rows, MAX_EVENTS))


def _batch_size(batch: Batch[E]) -> int:
    return sum(entry.size for entry in batch.entries) + 200 * len(batch.entries)
