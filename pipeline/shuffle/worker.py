"""The shuffler: the one writer of the events tables, on the session that holds the shuffle role's lock."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass

from psycopg import sql
from psycopg.rows import class_row

from pipeline.db import Connection
from pipeline.db import sql as statement
from pipeline.events import log
from pipeline.events.log import EventsTable
from pipeline.events.partitions import Partitions
from pipeline.shuffle.plan import Run, next_run
from pipeline.staging import segments
from pipeline.staging.segments import Segment

logger = logging.getLogger(__name__)

WAKE_AFTER = 0.5
"""Seconds without a NOTIFY after which it looks for itself."""


@dataclass(frozen=True)
class _Positions:
    epoch: int
    watermark: int
    complete: int


class Shuffler:
    """Moves whole transactions from staging into an events table.

    `connection` must be in autocommit mode, hold the shuffle role's lock and be used by nobody else: while the lock
    is held there is no other writer, so seq becomes visible in order and a reader of `seq > last` misses nothing.
    """

    def __init__(self, connection: Connection, source: uuid.UUID, table: EventsTable) -> None:
        self._connection = connection
        self._source = source
        self._table = table
        self._partitions = Partitions(connection, table)
        self._partly_moved: tuple[int, int] | None = None
        self._insert = sql.SQL(statement("shuffle", "move_segment"))
        self._advance = sql.SQL(statement("shuffle", "advance_watermark")).format(
            events=table.identifier, sequence=sql.Literal(table.sequence.as_string(connection))
        )
        # G4: a reader must never see a seq that an immediate shutdown takes back (facts: an asynchronous commit did).
        connection.execute(
            "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'"
        )
        connection.execute("set work_mem = '64MB'")
        connection.execute("set jit = off")
        connection.execute(sql.SQL("listen {}").format(sql.Identifier(segments.STAGED_CHANNEL)))

    def step(self) -> int:
        """Move the next run; returns how many events it added, -1 when there was nothing to do."""
        run = self._plan()
        if run is None:
            return -1
        self._partitions.reserve(run.rows)
        with self._connection.transaction():
            epoch = self._lock_watermark(run.after)
            moved = self._move_all(run, epoch) if run.segments else 0
            segments.mark_drained(self._connection, run.drained)
            if run.upto > run.after:
                self._set_watermark(run.upto, moved)
        if moved:
            logger.debug("moved", extra={"action": "shuffle.moved", "events": moved, "commit_lsn": run.upto})
        return moved

    def wait(self) -> None:
        """Until something is staged, at most WAKE_AFTER; meanwhile drained segments are emptied."""
        segments.empty_drained(self._connection)
        for _ in self._connection.notifies(timeout=WAKE_AFTER, stop_after=1):
            pass

    def _plan(self) -> Run | None:
        with self._connection.cursor(row_factory=class_row(_Positions)) as cursor:
            found = cursor.execute(statement("shuffle", "positions"), {"source": self._source}).fetchone()
        if found is None:
            return None
        return next_run(segments.pending(self._connection, self._source), found.watermark, found.complete)

    def _lock_watermark(self, expected: int) -> int:
        row = self._connection.execute(
            statement("shuffle", "lock_watermark"), {"source": self._source, "watermark": expected}
        ).fetchone()
        if row is None:
            raise RuntimeError(f"the watermark of source {self._source} is not at {expected}: a second shuffler ran")
        return int(row[0])

    def _move_all(self, run: Run, epoch: int) -> int:
        first = seq = log.next_seq(self._connection, self._table)
        for segment in run.segments:
            ordinal = self._next_ordinal(segment, run.after)
            moved = self._move(run, segment, epoch, offset=seq - ordinal)
            self._partly_moved = segment.id, ordinal + moved
            seq += moved
        if seq > first:
            log.set_seq(self._connection, self._table, seq - 1)
        return seq - first

    def _next_ordinal(self, segment: Segment, after: int) -> int:
        """Of the first row to move; only a segment that an earlier shuffler moved in part has to be asked."""
        if self._partly_moved and self._partly_moved[0] == segment.id:
            return self._partly_moved[1]
        if segment.first_lsn > after:
            return segment.first_ordinal
        return segments.first_ordinal_after(self._connection, segment, after)

    def _move(self, run: Run, segment: Segment, epoch: int, offset: int) -> int:
        query = self._insert.format(events=self._table.identifier, segment=segments.table(segment.id))
        values = {"source": self._source, "epoch": epoch, "offset": offset, "after": run.after, "upto": run.upto}
        return self._connection.execute(query, values).rowcount

    def _set_watermark(self, commit_lsn: int, events: int) -> None:
        row = self._connection.execute(
            self._advance, {"source": self._source, "commit_lsn": commit_lsn, "events": events}
        ).fetchone()
        if events and row is not None:
            log.notify(self._connection, self._table, row[0])
