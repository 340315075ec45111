"""Reads the log from the pipeline database, one pass after another, each with its parts in the order of writing."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

from pipeline.followers.applying import long_passes
from pipeline.followers.applying.followed_tables import FollowedTable, FollowedTables
from pipeline.followers.applying.long_passes import LongPassPlanner
from pipeline.followers.applying.outcomes import OrderedEvent, OutcomeReader, RowOutcome
from pipeline.followers.applying.passes import EpochGap, PassPlanner, PlannedPass
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection

PLANS = {
    # One plan reads all ranges of seqs, by index, even if the log was short when the plan was made. To plan again would
    # take longer than to read a few events.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    # No plan knows how many events a range has, and a nested loop over them takes quadratic time.
    "enable_nestloop": "off",
    # Sorts and hashes of many events stay in memory: they contain keys, not records.
    "work_mem": "16MB",
}
"""Settings of a session that reads the log."""


@dataclass(frozen=True)
class PassSizes:
    """Limits of passes.

    - `events`, `long`: the most events in a pass, and in a long pass.
    - `relayed`: if a pass has at least this number of events of one table, they are relayed as COPY text; fewer are
      cheaper as JSON.
    - `added`: the same limit if all of these events add rows, because new rows need no temporary table.
    - `long_bytes`: the most bytes that the records of a long pass take in the log.
    """

    events: int = 1000
    long: int = long_passes.EVENTS
    relayed: int = 300
    added: int = 50
    long_bytes: int = long_passes.BYTES


DEFAULT_SIZES = PassSizes()


@dataclass(frozen=True)
class FewOutcomes:
    """A few outcomes for one table, as objects."""

    oid: int
    outcomes: Sequence[RowOutcome]


@dataclass(frozen=True)
class ManyOutcomes:
    """Announces blocks of COPY text for one table; an empty block ends them.

    `new`: the number of rows, if all are new; else None.
    """

    oid: int
    new: int | None


@dataclass(frozen=True)
class EventsInOrder:
    """Events that are written one by one."""

    events: Sequence[OrderedEvent]


@dataclass(frozen=True)
class PassEnd:
    """The end of the parts of a pass."""


PassPart = FewOutcomes | ManyOutcomes | bytes | EventsInOrder


class LogReader:
    """Reads passes and their parts over its own connection, for the current versions of the tables."""

    def __init__(
        self,
        log: Connection,
        source: uuid.UUID,
        tables: FollowedTables,
        events_table: EventsTable,
        sizes: PassSizes,
        gap: EpochGap | None = None,
    ) -> None:
        """`gap`: reading stops before its epoch."""
        self.tables, self.sizes = tables, sizes
        self._is_behind = True
        self._passes = PassPlanner(log, source, events_table, sizes.events, gap)
        self._long = LongPassPlanner(log, source, events_table, tables, sizes.long, sizes.long_bytes, gap)
        self._outcomes = OutcomeReader(log, source, events_table)
        for setting, value in PLANS.items():
            log.execute("select set_config(%s, %s, false)", (setting, value))

    def next(
        self, after: int, upto: int | None = None, *, continues: bool = False, single: bool = False, long: bool = True
    ) -> PlannedPass | None:
        """Return the next pass, as `PassPlanner.next`, or a long pass if `long` and the last one had many events."""
        found = None
        if self._is_behind and long:
            found = self._long.next(after, upto, continues=continues)
        if found is None or (upto is not None and found.upto > upto):
            found = self._passes.next(self.tables, after, upto, continues=continues, single=single)
        self._is_behind = found is not None and 2 * found.events >= self.sizes.relayed
        return found

    def read_on(self, after: int, *, continues: bool) -> Generator[PlannedPass | PassPart | PassEnd, None, None]:
        """Yield each pass after a seq, its parts and a PassEnd, until no event follows or a table changes."""
        while True:
            self._is_behind = True
            planned = self.next(after, continues=continues, single=continues)
            if planned is None or planned.history_number != self.tables.history_number:
                return
            yield planned
            yield from self.parts(planned)
            yield PassEnd()
            after, continues = planned.upto, not planned.whole

    def parts(self, planned: PlannedPass) -> Generator[PassPart, None, None]:
        """Yield the outcomes of a pass for each table, then the events that are written one by one.

        Raises CursorExpiredError at the end if retention may have dropped some of the events.
        """
        emptied = {oid: seq for seq, oid in planned.truncates}
        for oid in sorted(planned.tables):
            table = self.tables[oid]
            if not table.in_order:
                yield from self._of_table(table, planned, emptied.get(oid, planned.after))
        touched = {*planned.tables, *emptied}
        if ordered := [table for table in self.tables if table.in_order and table.oid in touched]:
            # These events are read into memory, so only a few at a time.
            for after, upto in pairwise(self._outcomes.steps(planned.after, planned.upto, self.sizes.events)):
                yield EventsInOrder(self._outcomes.in_order(ordered, after, upto))
        self._passes.require_kept(planned.after)

    def _of_table(self, table: FollowedTable, planned: PlannedPass, after: int) -> Generator[PassPart, None, None]:
        share = planned.shares.get(table.oid)
        new = share is not None and share.only_new and _adds_rows(table, planned)
        if share is None or share.events < (self.sizes.added if new else self.sizes.relayed):
            yield FewOutcomes(table.oid, self._outcomes.folded(table, after, planned.upto))
            return
        if table.is_wide and not new:
            for begin, end in pairwise(self._outcomes.steps(after, planned.upto, self.sizes.events)):
                yield FewOutcomes(table.oid, self._outcomes.folded(table, begin, end))
            return
        read = self._outcomes.new_rows if new else self._outcomes.relayed
        yield ManyOutcomes(table.oid, share.events if new else None)
        with closing(read(table, after, planned.upto)) as blocks:
            yield from blocks
        yield b""


def _adds_rows(table: FollowedTable, planned: PlannedPass) -> bool:
    """Return True if each insert of this pass adds a row with values; while a table is filled, the row may exist."""
    return planned.after >= table.wanted.filled_upto and any(column.written for column in table.columns)
