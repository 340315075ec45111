"""Reads the log ahead: while a pass is written to the follower, a thread plans and renders the next passes.

The thread has its own connection and pauses while at least BYTES wait to be written.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress

import psycopg

from pipeline.errors import PipelineError
from pipeline.followers.applying.passes import PlannedPass
from pipeline.followers.applying.reading import EventsInOrder, FewOutcomes, LogReader, PassEnd, PassPart
from pipeline.postgres.connections import Connection

BYTES = 8 * 2**20
"""The most bytes that may wait to be written; one more item may exceed this limit."""
_AN_ELEMENT = 1000
"""The estimated bytes of an item that is not text."""
Item = PlannedPass | PassPart | PassEnd


class ReadAheadError(Exception):
    """A pass could not be read ahead to its end. The applier must read the log itself, and gets the reason there."""


class AheadReader:
    """Reads passes after a seq until the log ends, a table changes or an error occurs. Then the caller must read."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        reader: Callable[[Connection], LogReader],
        after: int,
        *,
        continues: bool,
    ) -> None:
        """`connect` and `reader` are called by the thread. `continues`: see `PassPlanner.next`."""
        self._connect, self._reader, self._continues = connect, reader, continues
        self.after = after
        """The seq after which the next pass begins."""
        self._log: Connection | None = None
        self._waiting: deque[Item] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closed = self._ended = False
        self._thread = threading.Thread(target=self._read, args=(after,), name="reads ahead", daemon=True)
        self._thread.start()

    def next(self) -> PlannedPass | None:
        """Return the next pass once it is planned; None at the end. The caller must then read its parts."""
        found = self._next_item()
        if not isinstance(found, PlannedPass):
            return None
        self.after = found.upto
        return found

    def parts(self) -> Generator[PassPart, None, None]:
        """Yield the parts of the last pass. Raises ReadAheadError."""
        while not isinstance(part := self._next_item(), PassEnd):
            if part is None or isinstance(part, PlannedPass):
                raise ReadAheadError
            yield part

    def close(self) -> None:
        """End the reading."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        while self._thread.is_alive():
            with suppress(psycopg.Error):
                if self._log is not None:
                    self._log.cancel_safe()
            self._thread.join(0.1)

    def _read(self, after: int) -> None:
        try:
            with (
                suppress(psycopg.Error, PipelineError),
                self._connect() as self._log,
                closing(self._reader(self._log).read_on(after, continues=self._continues)) as items,
            ):
                self._gather(items)
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _gather(self, items: Iterator[Item]) -> None:
        for item in items:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._bytes < BYTES)
                if self._closed:
                    return
                self._waiting.append(item)
                self._bytes += _size(item)
                self._changed.notify_all()

    def _next_item(self) -> Item | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if not self._waiting:
                return None
            item = self._waiting.popleft()
            self._bytes -= _size(item)
            self._changed.notify_all()
            return item


def _size(item: Item) -> int:
    if isinstance(item, bytes):
        return len(item)
    if isinstance(item, FewOutcomes):
        return sum(len(each.element) for each in item.outcomes)
    if isinstance(item, EventsInOrder):
        return sum(len(each.element or "") for each in item.events)
    return _AN_ELEMENT
