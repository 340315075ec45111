"""Finds the next pass to apply: read ahead, shared with other followers, or read from the log directly."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from pipeline.followers.applying import table_versions
from pipeline.followers.applying.followed_tables import FollowedTables
from pipeline.followers.applying.passes import EpochGap, PlannedPass
from pipeline.followers.applying.read_ahead import AheadReader
from pipeline.followers.applying.reading import LogReader, PassPart, PassSizes
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection

ALONE_SECONDS = 1.0
"""Seconds for which an applier reads alone, if no other follower reads the same events, before it asks again."""


@dataclass(frozen=True)
class LogSelection:
    """The events that an applier wants to read: those of one source for these tables, before the epoch of `gap`."""

    id: uuid.UUID
    tables: FollowedTables
    events_table: EventsTable
    sizes: PassSizes
    gap: EpochGap | None

    def reader(self, log: Connection) -> LogReader:
        """Return a reader of these events over this connection."""
        return LogReader(log, self.id, self.tables, self.events_table, self.sizes, self.gap)


@dataclass(frozen=True)
class NothingNext:
    """The answer that the log has no later event. `history_number`: of the relation history at that moment."""

    history_number: int


@dataclass(frozen=True)
class ReadAlone:
    """The answer that the applier must read alone. `upto`: the seq at which a shared pass begins; None: none does."""

    upto: int | None = None


class SharedReader(Protocol):
    """Reads the log for several followers at once."""

    def begin(self, source: LogSelection, seq: int) -> None:
        """Ask for this selection from now on. `seq`: the follower's position."""

    def next(self, after: int, *, continues: bool) -> PlannedPass | NothingNext | ReadAlone:
        """Return the next pass. `continues`: a transaction is open, and its last pass was shared."""

    def parts(self) -> Generator[PassPart, None, None]:
        """Yield the parts of the last pass. Raises ReadAheadError."""


class UpcomingPasses:
    """The next passes of one applier, for the current versions of its tables."""

    def __init__(
        self,
        log: Connection,
        source: LogSelection,
        seq: int,
        connect: Callable[[], Connection] | None,
        shared: SharedReader | None,
    ) -> None:
        """`connect`: opens a connection to the log that reads ahead. `seq`: the follower's position."""
        self._log, self._source, self._connect, self._shared = log, source, connect, shared
        self._reader = source.reader(log)
        self._ahead: AheadReader | None = None
        self._parts: Generator[PassPart, None, None] | None = None
        self._was_shared = False
        self._joins_at, self._joins_from = 0, 0.0
        if shared is not None:
            shared.begin(source, seq)

    def close(self) -> None:
        """Stop reading until the next pass is asked for."""
        if self._parts is not None:
            self._parts.close()
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    @property
    def parts(self) -> Generator[PassPart, None, None]:
        """The parts of the last pass. Raises ReadAheadError and CursorExpiredError."""
        assert self._parts is not None  # noqa: S101  there has been a pass
        return self._parts

    def next(
        self, after: int, upto: int | None, *, continues: bool, single: bool, closely: bool
    ) -> PlannedPass | NothingNext:
        """Return the next pass, whose parts are then in `parts`. `closely`: no long pass.

        The other arguments are those of `PassPlanner.next`.
        """
        free = upto is None and not closely and (continues or not single)
        if not free:
            self.close()
        found = self._read_ahead(after)
        if found is None and free:
            answer = self._share(after, continues=continues)
            if not isinstance(answer, ReadAlone):
                return answer
            upto = answer.upto
        if found is None:
            found = self._ask(after, upto, continues=continues, single=single, closely=closely)
        return found or NothingNext(table_versions.history_number(self._log, self._source.id))

    def _read_ahead(self, after: int) -> PlannedPass | None:
        if self._ahead is None:
            return None
        joins = self._shared is not None and 0 < self._joins_at <= after
        if not joins and self._ahead.after == after and (found := self._ahead.next()) is not None:
            self._parts = self._ahead.parts()
            return found
        self.close()
        return None

    def _share(self, after: int, *, continues: bool) -> PlannedPass | NothingNext | ReadAlone:
        """Ask the shared reading for the next pass, if that is useful now."""
        if self._shared is None or (continues and not self._was_shared):
            return ReadAlone()
        if after < self._joins_at or time.monotonic() < self._joins_from:
            return ReadAlone()
        answer = self._shared.next(after, continues=continues)
        self._was_shared = isinstance(answer, PlannedPass)
        if isinstance(answer, PlannedPass):
            self._parts = self._shared.parts()
        elif isinstance(answer, ReadAlone):
            self._joins_at = answer.upto or 0
            self._joins_from = 0.0 if answer.upto else time.monotonic() + ALONE_SECONDS
        return answer

    def _ask(self, after: int, upto: int | None, *, continues: bool, single: bool, closely: bool) -> PlannedPass | None:
        found = self._reader.next(after, upto, continues=continues, single=single, long=not closely)
        if found is not None:
            self._parts = self._reader.parts(found)
            self._begin_ahead(found, upto)
        return found

    def _begin_ahead(self, found: PlannedPass, upto: int | None) -> None:
        """Start to read ahead after a long pass with many events, unless a shared pass begins soon."""
        if self._connect is None or not found.is_long or found.events < self._source.sizes.relayed:
            return
        if upto is None or found.upto + self._source.sizes.long < upto:
            self._ahead = AheadReader(self._connect, self._source.reader, found.upto, continues=not found.whole)
