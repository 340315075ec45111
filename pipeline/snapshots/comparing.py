"""Plan the ranges of a comparison: a backfill that reads only the keys that may differ from the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import psycopg

from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing import differing
from pipeline.log import tables as events_tables
from pipeline.log.retention import policy
from pipeline.log.staging import ranges
from pipeline.log.staging.ranges import ClaimedRange, PlannedRange
from pipeline.postgres.connections import Connection
from pipeline.snapshots import backfills, known_tables, overview
from pipeline.snapshots.backfills import StoredBackfill

REASON = "compares the table with the log"
UNKNOWN = (
    "the log did not know all rows of the table: rows that it lacked were added with the action read, and it has no"
    " deletes of rows that it never had"
)
NOTHING = "it has no partitions, so nothing says what its rows were like"
"""Why a partitioned table without partitions cannot be compared."""
KEYS_PER_RANGE = 1_000
LOOK_SECONDS = 1.0
"""Seconds between two checks of whether the backfill has ended or is paused."""


def comparison(backfill: StoredBackfill) -> PlannedRange:
    """Return the range for which a worker compares the table instead of reading rows."""
    return PlannedRange(backfill.table_oid, backfill.table_oid, None, compares=True)


def split_keys(backfill: StoredBackfill, keys: Sequence[Sequence[str]]) -> list[PlannedRange]:
    """Return the ranges of these keys; without keys one empty range, so that there is a marker."""
    parts = [keys[at : at + KEYS_PER_RANGE] for at in range(0, len(keys), KEYS_PER_RANGE)] or [[]]
    table, marks = backfill.table_oid, backfill.differences
    return [PlannedRange(table, table, None, keys=part, differences=marks) for part in parts]


def floor_seqs(pipeline: Connection) -> dict[str, int]:
    """Return by events table the seq up to which retention has dropped events."""
    return {str(table): policy.dropped(pipeline, table).below - 1 for table in events_tables.with_known(pipeline, [])}


def knows_all_changes(told: Mapping[str, int] | None, floors: Mapping[str, int]) -> bool:
    """True if the log has always had every change of a table's rows.

    `told`: the table's `told_seqs`; `floors`: those of `floor_seqs`.
    """
    return told is not None and all(seq <= told.get(name, 0) for name, seq in floors.items())


def partly_known(pipeline: Connection, stored: ReplicationSource) -> list[str]:
    """Return the names of captured tables with a key of which the log lacks rows that a comparison can only add."""
    told = overview.whole_tables(pipeline, stored.id)
    floors = floor_seqs(pipeline)
    return sorted(
        each.table
        for each in known_tables.read(pipeline, stored).values()
        if each.captured and each.keyed and not knows_all_changes(told[each.table_oid].from_seqs, floors)
    )


class DifferencePlanner:
    """Compares one table for a worker, and plans ranges of the keys that may differ.

    `read` and `write` are connections to the pipeline database: the first reads the log, the second writes.
    """

    def __init__(self, source: Connection, read: Connection, write: Connection, stored: ReplicationSource) -> None:
        self._source, self._read, self._write, self._stored = source, read, write, stored

    def run(self, taken: ClaimedRange, backfill: StoredBackfill, stop: Callable[[], bool]) -> bool:
        """Compare the table; False if the comparison was stopped early, or its range was given to another worker.

        Then the comparison must start again. Ranges that it already planned are read, and planned and read again later.
        Keys that do not differ add no events, so this is harmless.
        """
        backfills.wait(self._write, backfill.id, REASON)
        stopping = _Stopping(self._write, backfill.id, stop)
        batches = self._batches(taken, backfill, stopping)
        batch = next(batches, None)
        while batch is not None and not stopping.is_stopping:
            following = next(batches, None)
            if following is None:
                break
            self._store(backfill, batch)
            batch = following
        return not stopping.is_stopping and self._end(taken, backfill, batch or [])

    def _end(self, taken: ClaimedRange, backfill: StoredBackfill, last: Sequence[Sequence[str]]) -> bool:
        """Plan the last batch and end the comparison; return False if its range was given to another worker."""
        ended = False
        with self._write.transaction():
            backfills.more_ranges(self._write, backfill.id, -1)  # first: a cancel locks the backfill before its ranges
            ended = ranges.end_comparison(self._write, taken)
            if not ended:
                raise psycopg.Rollback
            if last:
                self._store(backfill, last)
            backfills.wait(self._write, backfill.id, None)
        return ended

    def _batches(
        self, taken: ClaimedRange, backfill: StoredBackfill, stopping: Callable[[], bool]
    ) -> Iterator[list[list[str]]]:
        table = taken.table_oid
        return iter(differing.keys(self._source, self._read, self._stored, table, stopping, backfill.bounds))

    def _store(self, backfill: StoredBackfill, keys: Sequence[Sequence[str]]) -> None:
        with self._write.transaction():
            planned = split_keys(backfill, keys)
            added = ranges.plan(self._write, backfill.source_id, backfill.epoch, backfill.id, planned)
            backfills.more_ranges(self._write, backfill.id, added)


class _Stopping:
    """True, when called, if a comparison must end early: the worker stops, or the backfill has ended or is paused."""

    def __init__(self, pipeline: Connection, backfill: int, stop: Callable[[], bool]) -> None:
        self._pipeline, self._backfill, self._stop = pipeline, backfill, stop
        self._check_at = 0.0
        self.is_stopping = False
        """The last answer; it stays true."""

    def __call__(self) -> bool:
        self.is_stopping = self.is_stopping or self._stop() or self._ended()
        return self.is_stopping

    def _ended(self) -> bool:
        if time.monotonic() < self._check_at:
            return False
        self._check_at = time.monotonic() + LOOK_SECONDS
        found = backfills.find(self._pipeline, self._backfill)
        return found is None or found.state != "reading"
