"""Check the events tables of one source together: every change of a transaction is in exactly one of them."""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from psycopg import sql

from pipeline.log.retention import policy
from pipeline.log.table import EventsTable
from pipeline.operate.verify import violations
from pipeline.operate.verify.violations import Row, RuleCheck, of_row
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection

RANGE_ROWS = 20_000
"""Rows that one statement reads from a table; no snapshot is held for longer."""


class _Place(NamedTuple):
    """The position of a row in the source's history; places are ordered by position."""

    epoch: int
    commit_lsn: int
    commit_idx: int
    seq: int
    annotated: bool
    is_read: bool
    table_name: str
    events_table: str

    @property
    def transaction(self) -> tuple[int, int]:
        return self.epoch, self.commit_lsn

    def row(self) -> Row:
        """The row in the form in which a violation reports it."""
        return {
            "seq": self.seq,
            "source_epoch": self.epoch,
            "commit_lsn": self.commit_lsn,
            "commit_idx": self.commit_idx,
            "table_name": f"{self.table_name} in {self.events_table}",
        }


class AcrossTables:
    """Merges all tables, each up to its head, in the order of the source's history."""

    def __init__(self, connection: Connection, source: uuid.UUID, heads: Mapping[EventsTable, int]) -> None:
        self._connection = connection
        self._source = source
        self._heads = heads
        self._whole_after = (-1, -1)
        self.check = RuleCheck("all tables", f"each commit_idx is in one of them, {violations.GAPS}", "row")

    def run(self) -> RuleCheck:
        """Check that no change is in two tables, or in none."""
        before: _Place | None = None
        for place in heapq.merge(*(self._places(table, head) for table, head in self._heads.items())):
            self.check.checked += 1
            self._judge(before, place)
            before = place
        return self.check

    def _judge(self, before: _Place | None, place: _Place) -> None:
        continues = before is not None and before.transaction == place.transaction
        if before is not None and before[:3] == place[:3]:
            there = f"seq {before.seq} of {before.events_table}"
            self.check.add(of_row(place.row(), f"has the position of {there}", "a position that no other row has"))
            return
        if before and continues and before.is_read != place.is_read:
            self.check.add(of_row(place.row(), *violations.MIXED))
            return
        if place.transaction <= self._whole_after or self._may_follow_a_gap(before if continues else None, place):
            return
        first = before.commit_idx + 1 if before and continues else 0
        if place.commit_idx > first:
            wrong = f"commit_idx {first} to {place.commit_idx - 1} of its transaction are in no events table"
            self.check.add(of_row(place.row(), wrong, f"commit_idx {first} in one of them"))

    @staticmethod
    def _may_follow_a_gap(before: _Place | None, place: _Place) -> bool:
        """True if changes may be missing before the row: at annotations, and at rows that were read (some are skipped).

        `before`: the previous row of the transaction.
        """
        return place.annotated or place.is_read or (before is not None and before.annotated)

    def _places(self, table: EventsTable, head: int) -> Iterator[_Place]:
        query = sql.SQL(queries.statement("operate.verify", "verify_places")).format(events=table.identifier)
        after = 0
        while True:
            values: dict[str, Any] = {"source": self._source, "after": after, "head": head, "limit": RANGE_ROWS}
            rows = self._connection.execute(query, values).fetchall()
            dropped = policy.dropped(self._connection, table).below > after + 1
            if not rows:
                return
            if dropped:  # recorded before rows are dropped; the first kept row may be inside a transaction
                self._whole_after = max(self._whole_after, (rows[0][0], rows[0][1]))
            for row in rows:
                yield _Place._make([*row, str(table)])
            after = rows[-1][3]
