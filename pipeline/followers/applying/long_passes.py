"""Plans passes of many ordinary events, for an applier that is far behind."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from pipeline.followers.applying import passes
from pipeline.followers.applying.followed_tables import FollowedTables
from pipeline.followers.applying.passes import EpochGap, PlannedPass, TableShare
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

EVENTS = 20_000
"""The most events in a long pass."""
BYTES = 64 * 2**20
"""The most bytes that its records take in the log: if rows are large, a pass has fewer events."""


@dataclass(frozen=True)
class _LongPassRow:
    """A row of the query. Each of `shares`: table, number of events, True if all add new rows, seqs of truncates."""

    upto: int
    whole: bool
    source_epoch: int
    commit_lsn: int | None
    committed_at: datetime
    several: bool
    events: int
    size: int
    shares: Sequence[tuple[int, int, bool, list[int]]]
    history_number: int


class LongPassPlanner:
    """Plans long passes of one events table, for the current versions of the tables."""

    def __init__(
        self,
        log: Connection,
        source: uuid.UUID,
        events_table: EventsTable,
        tables: FollowedTables,
        events: int,
        size: int,
        gap: EpochGap | None = None,
    ) -> None:
        """`events`, `size`: the most events, and the most bytes as in BYTES. `gap`: stop before its epoch."""
        self._log, self._events, self._size, self._ask_for = log, events, size, events
        self._query = (
            sql.SQL(statement("followers.applying", "long_pass"))
            .format(
                **passes.table_parameters(tables, source),
                events=events_table.identifier,
                gap=passes.end_epoch(gap),
                after=sql.SQL("$1::bigint"),
                most=sql.SQL("$2::bigint"),
                continues=sql.SQL("$3::boolean"),
            )
            .as_string(None)
        )

    def next(self, after: int, upto: int | None, *, continues: bool) -> PlannedPass | None:
        """Return the long pass after a seq; None if no event follows, or if `PassPlanner` must plan the next events.

        `upto`: the pass ends there or soon after. `continues`: a transaction is open, and the pass ends with it.
        """
        cursor = psycopg.RawCursor(self._log, row_factory=class_row(_LongPassRow))
        # Seqs have few gaps, so a pass of that many events ends at `upto`, or soon after it.
        most = self._ask_for if upto is None or continues else max(1, min(self._ask_for, upto - after))
        found = cursor.execute(self._query, (after, most, continues), prepare=True).fetchone()
        if found is None:
            return None
        average = found.size / max(1, found.events)
        self._ask_for = max(1, min(self._events, int(self._size / max(1.0, average))))
        if found.size > self._size and found.events > self._ask_for:
            return self.next(after, upto, continues=continues)
        return PlannedPass(
            after,
            found.upto,
            found.whole,
            found.source_epoch,
            found.commit_lsn,
            found.committed_at,
            2 if found.several else 1,
            found.events,
            sorted(oid for oid, events, _, _ in found.shares if events),
            tuple(sorted((seq, oid) for oid, _, _, truncates in found.shares for seq in truncates)),
            found.history_number,
            True,
            {oid: TableShare(events, only_new) for oid, events, only_new, _ in found.shares},
        )
