"""The log read ahead: while a pass is written to the follower, those behind it are planned and rendered.

A thread reads over a connection of its own, until so many bytes wait to be written.
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
"""The most that waits, but for what is larger by itself."""
_AN_ELEMENT = 1000
"""Bytes, as a guess at what is no text."""
Item = PlannedPass | PassPart | PassEnd


class ReadAheadError(Exception):
    """A pass could not be read ahead to its end. Who asks the log itself learns why."""


class AheadReader:
    """Everything after a seq, until the log is at its end, a table changes, or something fails: then ask the log."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        reader: Callable[[Connection], LogReader],
        after: int,
        *,
        continues: bool,
    ) -> None:
        """`connect` and `reader` are called by the thread. `continues`: as for a pass."""
        self._connect, self._reader, self._continues = connect, reader, continues
        self.after = after
        """The seq behind which the next pass begins."""
        self._log: Connection | None = None
        self._waiting: deque[Item] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closed = self._ended = False
        self._thread = threading.Thread(target=self._read, args=(after,), name="reads ahead", daemon=True)
        self._thread.start()

    def next(self) -> PlannedPass | None:
        """The next pass, as soon as it is planned; after it its parts have to be taken. None at the end."""
        found = self._take()
        if not isinstance(found, PlannedPass):
            return None
        self.after = found.upto
        return found

    def parts(self) -> Generator[PassPart, None, None]:
        """Of the pass that was taken last. Raises ReadAheadError."""
        while not isinstance(part := self._take(), PassEnd):
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

    def _take(self) -> Item | None:
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
