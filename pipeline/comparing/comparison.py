"""Compare a table at the source with its state in the log, while both are written.

Both sides are divided by the table's key into parts. For each part, the source adds up the checksums of the rows in a
short transaction. Once the log has everything that the snapshot of this transaction contains, the checksums of the log
are added up as of that snapshot: each row counts with its newest event whose transaction is visible there. If the sums
differ, keys and checksums are compared one by one. Rows found in this way *may* differ;
`pipeline.comparing.differences` says which do.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing import log_state, source_rows
from pipeline.comparing.compared_table import ComparableTable
from pipeline.comparing.log_state import Key, LogState
from pipeline.comparing.source_rows import SourceRows
from pipeline.errors import DatabaseUnavailableError
from pipeline.log.staging import progress
from pipeline.postgres.connections import Connection

ROWS_PER_PART = 10_000
"""The source adds up the checksums of this many rows in one transaction."""
PARTS_PER_LOOK = 50
"""The comparison reads this many parts at the source before it waits for the log."""
STALLED_SECONDS = 60.0
"""How many seconds the log may stand still while the comparison waits for it."""
_POLL = 0.02
"""Seconds between two queries for the log's progress."""


@dataclass(frozen=True)
class ComparedParts:
    """The result for some parts of a table: the number of `rows` at the source, and the keys of rows that may differ.

    `lsn`: everything that committed before this LSN was compared.
    """

    rows: int
    parts: int
    parts_of_table: int
    lsn: int
    keys: Sequence[Key]


class ContentComparison:
    """Compares one table. Until the end, nothing else may use the connections, and only one thread may."""

    def __init__(
        self,
        source: Connection,
        pipeline: Connection,
        stored: ReplicationSource,
        table: ComparableTable,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`stopping`: `run` ends early as soon as this function returns True."""
        self.table = table
        self._source, self._pipeline, self._stored = source, pipeline, stored
        self.rows = SourceRows(source, table)
        self._stopping = stopping

    def run(self, share: float = 1.0) -> Iterator[tuple[ComparedParts, LogState]]:
        """Compare the table part by part. `share`: the share of the parts to compare, chosen at random.

        Raises NotComparableError, psycopg.Error of either database, or DatabaseUnavailableError if the log is stuck.
        """
        with log_state.opened(self._pipeline, self._stored, self.table, ROWS_PER_PART) as state:
            self._wait_for_commits(state)
            edges = [None, *self.rows.in_order(state.bounds), None]
            parts = list(enumerate(pairwise(edges)))
            if share < 1:
                parts = sorted(random.sample(parts, max(1, round(share * len(parts)))))
            for at in range(0, len(parts), PARTS_PER_LOOK):
                if self._stopping():
                    return
                yield self._compare_parts(state, dict(parts[at : at + PARTS_PER_LOOK]), len(parts)), state

    def _wait_for_commits(self, state: LogState) -> None:
        """Wait until new snapshots at the source contain every transaction that the log's state has.

        A commit that waits for a synchronous standby is already in the stream, but no snapshot contains it yet. Raises
        DatabaseUnavailableError if this takes too long.
        """
        since = time.monotonic()
        while state.has_any_of(source_rows.running(self._source)) and not self._stopping():
            if time.monotonic() - since > STALLED_SECONDS:
                raise DatabaseUnavailableError(
                    f"a transaction of the log has not become visible at the source for {STALLED_SECONDS:.0f} s:"
                    " it waits for a synchronous standby. Start the comparison again once the standby has answered"
                )
            time.sleep(_POLL)

    def _compare_parts(
        self, state: LogState, parts: dict[int, source_rows.Bounds], parts_of_table: int
    ) -> ComparedParts:
        lsn = source_rows.mark(self._source)
        summed = {part: self.rows.sum(bounds) for part, bounds in parts.items()}
        self.wait_for_log()
        state.read_on()
        logged = state.sums({part: snapshot for part, (snapshot, _) in summed.items()})
        keys = [
            key
            for part, (_, found) in summed.items()
            if found != logged[part] and not self._stopping()
            for key in self._differing(state, part, parts[part])
        ]
        return ComparedParts(sum(found.rows for _, found in summed.values()), len(parts), parts_of_table, lsn, keys)

    def _differing(self, state: LogState, part: int, bounds: source_rows.Bounds) -> Iterator[Key]:
        """Yield the keys of rows of a part that only one side has, or that have different checksums."""
        logged: dict[Key, log_state.RowChecksum] | None = None
        for snapshot, found in self.rows.pages(bounds, ROWS_PER_PART):
            if logged is None:
                self.wait_for_log()
                state.read_on()
                logged = state.rows(part, snapshot)
            for key, checksum in found:
                known = logged.pop(key, None)
                if known is None or known.checksum != checksum:
                    yield key
        yield from (key for key in logged or () if key)

    def wait_for_log(self) -> None:
        """Wait until the log has everything that any snapshot taken by now contains."""
        wait_for_log(self._pipeline, self._stored, source_rows.mark(self._source))


def wait_for_log(pipeline: Connection, stored: ReplicationSource, lsn: int) -> None:
    """Wait until the log has everything before this LSN. Raises DatabaseUnavailableError if the log stands still."""
    last, since = None, time.monotonic()
    while True:
        reaches, place = progress.log_reaches(pipeline, stored.id, lsn)
        if reaches:
            return
        if place != last:
            last, since = place, time.monotonic()
        if time.monotonic() - since > STALLED_SECONDS:
            raise DatabaseUnavailableError(
                f"the log has stood still for {STALLED_SECONDS:.0f} s; `pipeline status` says why. Content can be"
                " compared only while a server replicates"
            )
        time.sleep(_POLL)
