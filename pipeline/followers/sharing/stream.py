"""Reads the log once for several appliers at about the same seq, and keeps recent passes for appliers that ask later.

No applier waits for another. The next pass is read when the first applier asks for it, or earlier if the last one had
many events. An applier that asks too late for a pass reads alone, up to a pass that is still kept.
"""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg

from pipeline.errors import PipelineError
from pipeline.followers.applying import table_versions
from pipeline.followers.applying.passes import PlannedPass
from pipeline.followers.applying.reading import LogReader, PassEnd
from pipeline.followers.applying.upcoming_passes import LogSelection, NothingNext, ReadAlone
from pipeline.followers.sharing.messages import BrokenPass, PassRequest, StillReading
from pipeline.postgres.connections import Connection

KEPT_BYTES = 24 * 2**20
KEPT_PASSES = 64
"""The most bytes and passes that are kept, in addition to the latest pass."""
AHEAD_BYTES = 8 * 2**20
"""The bytes that may be read before an applier asks for them. Also the most bytes of a pass's records in the log."""
LATE = 4
"""An applier that is this many small passes behind reads them alone, as one."""
THREAD = "followers' reading"
PULSE_SECONDS = 1.0
"""Seconds between two `StillReading` messages while a pass is read."""


@dataclass(eq=False)
class _KeptPass:
    """A pass and its parts as messages; the last one is a PassEnd or BrokenPass."""

    planned: PlannedPass
    continues: bool
    messages: list[bytes] = field(default_factory=list)
    size: int = 0
    taken: bool = False
    done: bool = False


class SharedStream:
    """Reads one selection for several appliers. `readers`: the number of appliers that have joined."""

    def __init__(self, connect: Callable[[], Connection], source: LogSelection) -> None:
        sizes = replace(source.sizes, long_bytes=AHEAD_BYTES)
        self._connect, self._source = connect, replace(source, sizes=sizes)
        self.readers = 0
        self._changed = threading.Condition()
        self._kept = deque[_KeptPass]()
        self._end: tuple[int, bool] | None = None  # the seq after which the next pass begins; True: in a transaction
        self._asked = self._reading = self._goes_on = self.ended = False
        self._reads = self._failed_in = self._nothing_in = 0
        self._history_number = 0
        self._thread: threading.Thread | None = None  # runs once a pass is read for two appliers

    def close(self) -> None:
        """End the stream; its thread stops after the current pass."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def answer(self, ask: PassRequest) -> Iterator[bytes]:
        """Yield the answer as encoded messages, perhaps with `StillReading` between any two of them.

        The answer is a `PlannedPass`, its parts and a `PassEnd` or `BrokenPass`; or `NothingNext`; or `ReadAlone`.
        """
        with self._changed:
            since = self._reads
        while True:
            with self._changed:
                found = self._find_answer(ask, since)
                in_time = found is not None or self._changed.wait(PULSE_SECONDS)
            if isinstance(found, _KeptPass):
                yield from self._messages(found)
                return
            if found is not None or not in_time:
                yield encode(found or StillReading())
            if found is not None:
                return

    def _messages(self, kept: _KeptPass) -> Iterator[bytes]:
        yield encode(kept.planned)
        sent = 0
        while sent == 0 or not kept.done or sent < len(kept.messages):
            with self._changed:
                in_time = len(kept.messages) > sent or self._changed.wait(PULSE_SECONDS)
                messages = kept.messages[sent:]
            yield from messages if in_time else [encode(StillReading())]
            sent += len(messages)

    def _find_answer(self, ask: PassRequest, since: int) -> _KeptPass | NothingNext | ReadAlone | None:
        """Return the answer to a request; None: ask again once the stream has changed."""
        if self.ended or self.readers < 2:
            return ReadAlone()
        here = (ask.after, ask.continues)
        if (found := self._find(here)) is not None:
            return found
        if not ask.continues and (self._end is None or ask.after > self._end[0]):
            if self._reading:
                return None
            self._kept.clear()
            self._end = here
        return self._at_end(since) if here == self._end else ReadAlone(self._next_begin(ask.after))

    def _find(self, here: tuple[int, bool]) -> _KeptPass | ReadAlone | None:
        for number, kept in enumerate(self._kept, 1):
            if (kept.planned.after, kept.continues) == here:
                if kept.planned.events < self._source.sizes.relayed and len(self._kept) - number >= LATE:
                    return ReadAlone(self._next_begin(self._kept[-1].planned.after))
                kept.taken = True
                self._changed.notify_all()
                return kept
        return None

    def _at_end(self, since: int) -> NothingNext | ReadAlone | None:
        if self._nothing_in > since:
            return NothingNext(self._history_number)
        if self._failed_in > since:
            return ReadAlone()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
            self._thread.start()
        self._asked = True
        self._changed.notify_all()
        return None

    def _next_begin(self, after: int) -> int | None:
        """Return the first seq after this one at which a pass begins with a new transaction."""
        begins = [(kept.planned.after, kept.continues) for kept in self._kept]
        begins += [self._end] if self._end else []
        return min((seq for seq, continues in begins if seq > after and not continues), default=None)

    def _run(self) -> None:
        try:
            with self._connect() as log:
                reader = self._source.reader(log)
                while (begin := self._wanted()) is not None:
                    self._read(log, reader, *begin)
        except (psycopg.Error, PipelineError):
            pass  # an applier that reads alone gets the error itself
        finally:
            self.close()

    def _wanted(self) -> tuple[int, bool] | None:
        """Wait until the next pass is wanted, and return where it begins; None at the end."""
        with self._changed:
            self._reading = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.ended or self._asked or (self._goes_on and self._has_room()))
            self._reading, self._asked = True, False
            self._reads += 1
            return None if self.ended else self._end

    def _has_room(self) -> bool:
        return sum(kept.size for kept in self._kept if not kept.taken) < AHEAD_BYTES

    def _read(self, log: Connection, reader: LogReader, after: int, continues: bool) -> None:
        """Read one pass, or find that nothing comes next."""
        self._goes_on = False
        try:
            planned = reader.next(after, continues=continues, single=continues)
        except PipelineError:  # the pass cannot be applied, which each follower reports itself
            self._failed_in = self._reads
            return
        if planned is None or planned.history_number != self._source.tables.history_number:
            number = planned.history_number if planned else table_versions.history_number(log, self._source.id)
            self._history_number = number
            self._nothing_in = self._reads
            return
        kept = _KeptPass(planned, continues)
        with self._changed:
            self._kept.append(kept)
            self._end = planned.upto, not planned.whole
            self._changed.notify_all()
        try:
            for part in reader.parts(planned):
                self._add(kept, encode(part))
            last = encode(PassEnd())
        except BaseException as error:
            last = encode(BrokenPass())
            if not isinstance(error, PipelineError):
                raise
        finally:
            self._add(kept, last, done=True)
        self._goes_on = planned.events >= self._source.sizes.relayed

    def _add(self, kept: _KeptPass, message: bytes, *, done: bool = False) -> None:
        with self._changed:
            kept.messages.append(message)
            kept.size += len(message)
            kept.done = done
            if done:
                self._drop()
            self._changed.notify_all()

    def _drop(self) -> None:
        """Drop passes beyond the limits. An applier that is reading a dropped pass still gets all of it."""
        size = sum(kept.size for kept in self._kept)
        while len(self._kept) > 1 and (size > KEPT_BYTES or len(self._kept) > KEPT_PASSES):
            size -= self._kept.popleft().size


def encode(message: Any) -> bytes:
    """Encode a message for `multiprocessing.connection.Connection.recv`."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
