"""The log read once for several appliers that are at the same place: the passes of late, each kept for those who come
for it a little later.

Nobody waits for anybody. The next pass is read when the first one asks for it, and where there are many events ahead of
him, before he does. Who comes too late for a pass reads alone, up to one that is still there.
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
from pipeline.followers.applying.passes import Pass
from pipeline.followers.applying.reading import End, LogReader
from pipeline.followers.applying.upcoming import Alone, Nothing, Source
from pipeline.followers.sharing.messages import Ask, Broken, Working
from pipeline.postgres.connections import Connection

KEPT_BYTES = 24 * 2**20
KEPT_PASSES = 64
"""The most that is kept, but for the latest pass."""
AHEAD_BYTES = 8 * 2**20
"""So much may be there that nobody has asked for; and the most that the records of a pass take in the log."""
LATE = 4
"""Who is so many small passes behind reads them as one."""
THREAD = "followers' reading"
PULSE_SECONDS = 1.0
"""Between two signs of life while something is read."""


@dataclass(eq=False)
class _Kept:
    """A pass and its parts, as messages; an End or Broken is the last."""

    planned: Pass
    continues: bool
    messages: list[bytes] = field(default_factory=list)
    size: int = 0
    taken: bool = False
    done: bool = False


class Stream:
    """Of one source. `readers`: how many appliers are attached to it."""

    def __init__(self, connect: Callable[[], Connection], source: Source) -> None:
        sizes = replace(source.sizes, long_bytes=AHEAD_BYTES)
        self._connect, self._source = connect, replace(source, sizes=sizes)
        self.readers = 0
        self._changed = threading.Condition()
        self._kept = deque[_Kept]()
        self._end: tuple[int, bool] | None = None  # where the next pass begins, and whether in a transaction
        self._asked = self._reading = self._goes_on = self.ended = False
        self._looks = self._failed_in = self._nothing_in = 0
        self._version = 0
        self._thread: threading.Thread | None = None  # from the first on that is read for two

    def close(self) -> None:
        """Read nothing more."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def answer(self, ask: Ask) -> Iterator[bytes]:
        """Messages: a Pass, its parts and an End or Broken; or Nothing; or Alone. Working may be between any two."""
        with self._changed:
            since = self._looks
        while True:
            with self._changed:
                found = self._look(ask, since)
                in_time = found is not None or self._changed.wait(PULSE_SECONDS)
            if isinstance(found, _Kept):
                yield from self._messages(found)
                return
            if found is not None or not in_time:
                yield encode(found or Working())
            if found is not None:
                return

    def _messages(self, kept: _Kept) -> Iterator[bytes]:
        yield encode(kept.planned)
        sent = 0
        while sent == 0 or not kept.done or sent < len(kept.messages):
            with self._changed:
                in_time = len(kept.messages) > sent or self._changed.wait(PULSE_SECONDS)
                messages = kept.messages[sent:]
            yield from messages if in_time else [encode(Working())]
            sent += len(messages)

    def _look(self, ask: Ask, since: int) -> _Kept | Nothing | Alone | None:
        """None: to be looked for again once something has changed."""
        if self.ended or self.readers < 2:
            return Alone()
        here = (ask.after, ask.continues)
        if (found := self._find(here)) is not None:
            return found
        if not ask.continues and (self._end is None or ask.after > self._end[0]):
            if self._reading:
                return None
            self._kept.clear()
            self._end = here
        return self._at_end(since) if here == self._end else Alone(self._next_begin(ask.after))

    def _find(self, here: tuple[int, bool]) -> _Kept | Alone | None:
        for place, kept in enumerate(self._kept, 1):
            if (kept.planned.after, kept.continues) == here:
                if kept.planned.events < self._source.sizes.relayed and len(self._kept) - place >= LATE:
                    return Alone(self._next_begin(self._kept[-1].planned.after))
                kept.taken = True
                self._changed.notify_all()
                return kept
        return None

    def _at_end(self, since: int) -> Nothing | Alone | None:
        if self._nothing_in > since:
            return Nothing(self._version)
        if self._failed_in > since:
            return Alone()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
            self._thread.start()
        self._asked = True
        self._changed.notify_all()
        return None

    def _next_begin(self, after: int) -> int | None:
        """The first place behind a seq where a pass begins with a transaction."""
        begins = [(kept.planned.after, kept.continues) for kept in self._kept]
        begins += [self._end] if self._end else []
        return min((seq for seq, continues in begins if seq > after and not continues), default=None)

    def _run(self) -> None:
        try:
            with self._connect() as log:
                reader = self._source.reader(log)
                while (place := self._wanted()) is not None:
                    self._read(log, reader, *place)
        except (psycopg.Error, PipelineError):
            pass  # who asks the log itself learns why
        finally:
            self.close()

    def _wanted(self) -> tuple[int, bool] | None:
        """Where the next pass begins, once it is wanted; None at the end."""
        with self._changed:
            self._reading = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.ended or self._asked or (self._goes_on and self._has_room()))
            self._reading, self._asked = True, False
            self._looks += 1
            return None if self.ended else self._end

    def _has_room(self) -> bool:
        return sum(kept.size for kept in self._kept if not kept.taken) < AHEAD_BYTES

    def _read(self, log: Connection, reader: LogReader, after: int, continues: bool) -> None:
        """One pass, or find that there is none."""
        self._goes_on = False
        try:
            planned = reader.next(after, continues=continues, single=continues)
        except PipelineError:  # it cannot be applied, which each follower says by itself
            self._failed_in = self._looks
            return
        if planned is None or planned.version != self._source.tables.version:
            self._version = planned.version if planned else table_versions.newest(log, self._source.id)
            self._nothing_in = self._looks
            return
        kept = _Kept(planned, continues)
        with self._changed:
            self._kept.append(kept)
            self._end = planned.upto, not planned.whole
            self._changed.notify_all()
        try:
            for part in reader.parts(planned):
                self._add(kept, encode(part))
            last = encode(End())
        except BaseException as error:
            last = encode(Broken())
            if not isinstance(error, PipelineError):
                raise
        finally:
            self._add(kept, last, done=True)
        self._goes_on = planned.events >= self._source.sizes.relayed

    def _add(self, kept: _Kept, message: bytes, *, done: bool = False) -> None:
        with self._changed:
            kept.messages.append(message)
            kept.size += len(message)
            kept.done = done
            if done:
                self._drop()
            self._changed.notify_all()

    def _drop(self) -> None:
        """What is more than may be kept. Who is at it has it until he is done."""
        size = sum(kept.size for kept in self._kept)
        while len(self._kept) > 1 and (size > KEPT_BYTES or len(self._kept) > KEPT_PASSES):
            size -= self._kept.popleft().size


def encode(message: Any) -> bytes:
    """For `multiprocessing.connection.Connection.recv`."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
