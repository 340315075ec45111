"""What is applied next: read ahead, read for several followers at once, or asked of the log, whichever is at hand."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from pipeline.followers.applying import table_versions
from pipeline.followers.applying.ahead import Ahead
from pipeline.followers.applying.followed_tables import FollowedTables
from pipeline.followers.applying.passes import Gap, Pass
from pipeline.followers.applying.reading import LogReader, Part, Sizes
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection

ALONE_SECONDS = 1.0
"""How long to read alone where nobody else reads the same, before it is asked again."""


@dataclass(frozen=True)
class Source:
    """What is read: the events of a source, for tables as they are. `gap`: before which epoch to stop."""

    id: uuid.UUID
    tables: FollowedTables
    events_table: EventsTable
    sizes: Sizes
    gap: Gap | None

    def reader(self, log: Connection) -> LogReader:
        """Reads it over this connection."""
        return LogReader(log, self.id, self.tables, self.events_table, self.sizes, self.gap)


@dataclass(frozen=True)
class Nothing:
    """Comes next. `version`: the newest of the relation history, as of the moment when it was looked."""

    version: int


@dataclass(frozen=True)
class Alone:
    """Is to be read what comes next. `upto`: a seq at which what is read for several begins; None where nothing is."""

    upto: int | None = None


class Shared(Protocol):
    """What is read for several followers at once."""

    def begin(self, source: Source, seq: int) -> None:
        """From now on this is asked for."""

    def next(self, after: int, *, continues: bool) -> Pass | Nothing | Alone:
        """As `Passes.next`. `continues`: a transaction is open there, of which the pass before this one was shared."""

    def parts(self) -> Generator[Part, None, None]:
        """Of the pass that was taken last. Raises ReadAheadError."""


class Upcoming:
    """For one applier, for tables as they are."""

    def __init__(
        self, log: Connection, source: Source, seq: int, connect: Callable[[], Connection] | None, shared: Shared | None
    ) -> None:
        """`connect`: to the log, to read ahead. `seq`: where the follower is."""
        self._log, self._source, self._connect, self._shared = log, source, connect, shared
        self._reader = source.reader(log)
        self._ahead: Ahead | None = None
        self._parts: Generator[Part, None, None] | None = None
        self._was_shared = False
        self._joins_at, self._joins_from = 0, 0.0
        if shared is not None:
            shared.begin(source, seq)

    def close(self) -> None:
        """Nothing is read any more, until the next is asked for."""
        if self._parts is not None:
            self._parts.close()
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    @property
    def parts(self) -> Generator[Part, None, None]:
        """Of the pass that came last. Raises ReadAheadError and CursorExpiredError."""
        assert self._parts is not None  # noqa: S101  there has been a pass
        return self._parts

    def next(self, after: int, upto: int | None, *, continues: bool, single: bool, closely: bool) -> Pass | Nothing:
        """As `Passes.next`; its parts are then in `parts`. `closely`: as few events as it may."""
        free = upto is None and not closely and (continues or not single)
        if not free:
            self.close()
        found = self._read_ahead(after)
        if found is None and free:
            answer = self._share(after, continues=continues)
            if not isinstance(answer, Alone):
                return answer
            upto = answer.upto
        if found is None:
            found = self._ask(after, upto, continues=continues, single=single, closely=closely)
        return found or Nothing(table_versions.newest(self._log, self._source.id))

    def _read_ahead(self, after: int) -> Pass | None:
        if self._ahead is None:
            return None
        joins = self._shared is not None and 0 < self._joins_at <= after
        if not joins and self._ahead.after == after and (found := self._ahead.next()) is not None:
            self._parts = self._ahead.parts()
            return found
        self.close()
        return None

    def _share(self, after: int, *, continues: bool) -> Pass | Nothing | Alone:
        """What is read for several, where it is worth asking for."""
        if self._shared is None or (continues and not self._was_shared):
            return Alone()
        if after < self._joins_at or time.monotonic() < self._joins_from:
            return Alone()
        answer = self._shared.next(after, continues=continues)
        self._was_shared = isinstance(answer, Pass)
        if isinstance(answer, Pass):
            self._parts = self._shared.parts()
        elif isinstance(answer, Alone):
            self._joins_at = answer.upto or 0
            self._joins_from = 0.0 if answer.upto else time.monotonic() + ALONE_SECONDS
        return answer

    def _ask(self, after: int, upto: int | None, *, continues: bool, single: bool, closely: bool) -> Pass | None:
        found = self._reader.next(after, upto, continues=continues, single=single, long=not closely)
        if found is not None:
            self._parts = self._reader.parts(found)
            self._begin_ahead(found, upto)
        return found

    def _begin_ahead(self, found: Pass, upto: int | None) -> None:
        """Where it is worth it: behind a pass that is long in fact, and before others read the same."""
        if self._connect is None or not found.is_long or found.events < self._source.sizes.relayed:
            return
        if upto is None or found.upto + self._source.sizes.long < upto:
            self._ahead = Ahead(self._connect, self._source.reader, found.upto, continues=not found.whole)
