"""The shuffler moves staged rows into the events tables, on the session that holds the shuffle role's lock."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

import psycopg
from psycopg import sql

from pipeline.config.routes import Route
from pipeline.log import jumps
from pipeline.log.jumps import SourceClock
from pipeline.log.shuffling import placed_ranges, poison, retrying, routes, waiting
from pipeline.log.shuffling.attaching import TableAttacher
from pipeline.log.shuffling.large_transactions import LargeTransactionMover
from pipeline.log.shuffling.last_changes import LastChanges
from pipeline.log.shuffling.placed_ranges import PlacedRun
from pipeline.log.shuffling.plan import ShuffleRun, next_run
from pipeline.log.shuffling.poison import BisectingTransfer, OnPoison, PoisonChange, PoisonError
from pipeline.log.shuffling.targets import TargetTables
from pipeline.log.shuffling.transfer import (
    LogWatermark,
    RowTransfer,
    SeqTakenError,
    TransferFactory,
    WatermarkMovedError,
    wake_readers,
)
from pipeline.log.shuffling.waiting import WaitingRun
from pipeline.log.staging import segments
from pipeline.log.staging.segments import Segment, StagingState
from pipeline.log.table import EventsTable
from pipeline.postgres import batched_transaction, connections
from pipeline.postgres.batched_transaction import PreparedStatementCache
from pipeline.postgres.connections import Connection

logger = logging.getLogger(__name__)

WAKE_AFTER = 0.5
"""Seconds without a NOTIFY after which the shuffler looks for staged rows anyway."""
BUSY_PACE, BUSY_ROWS = 0.012, 100
"""The fewest seconds of a run that moved at least that many rows: fast transactions then share the cost of one."""
PROBE_EVERY = 1.0
"""Seconds between two tries of a change that could not be written."""
EMPTY_AT = 16
"""Number of drained segments at which they are emptied even while there is more to move."""
EMPTY_EVERY = 1.0
"""Seconds between looks for segments that other shufflers have drained."""


class QueuesToFill(Protocol):
    """The queues of consumers that this session fills between two moves; filling waits for no other session."""

    def fill(self, left: float | None, first: Callable[[], bool]) -> bool:
        """Call `first` and add to queues, if it is their turn; returns True if there was something to do.

        `left`: seconds until the next move; None if there is nothing to move.
        """

    @property
    def rest(self) -> float | None:
        """Seconds until the next turn if queues wait for the log to catch up; None if they do not."""


class Shuffler:
    """Moves whole transactions from staging into the events tables; changes that no route matches into `table`.

    `connection` must be in autocommit mode, hold the shuffle role's lock and have no other user. While it holds the
    watermark's row there is no other writer, so seq becomes visible in order, and readers of `seq > last` miss nothing.
    Routes take effect at the watermark; the first step raises ConfigError for a `table` that cannot be the default.
    `stopping` is called while a large transaction is awaited; `source_clock` if the log may have gone back.
    `queues` are filled between two moves. `retention`: seconds that events are kept, for the size of partitions.
    `on_poison`: what to do with a change that cannot be written; with "stop", `poison` is that change, and it is tried
    again every PROBE_EVERY.
    """

    def __init__(
        self,
        connection: Connection,
        source: uuid.UUID,
        table: EventsTable,
        stopping: Callable[[], bool],
        source_clock: SourceClock,
        queues: QueuesToFill,
        retention: float | None = None,
        routes: Sequence[Route] = (),
        on_poison: OnPoison = "stop",
    ) -> None:
        self._connection = connection
        self._source = source
        self._stopping, self._source_clock = stopping, source_clock
        self._is_continued = False
        self._table, self._routes, self._retention = table, tuple(routes), retention
        self._opened: TargetTables | None = None
        self._prepared = PreparedStatementCache(connection)
        self._changes = LastChanges()
        self._transfers = TransferFactory(connection, source, lambda: self._targets)
        self._attacher = TableAttacher(connection, source, self._transfers)
        self._large = LargeTransactionMover(connection, self._transfers, lambda: self._read_state(), stopping)
        self._queues = queues
        self._empty_at = 0.0
        self._on_poison = on_poison
        self._probe_at = 0.0
        self.poison: PoisonChange | None = None
        """The change that cannot be written and blocks all that is staged after it."""
        connection.execute(sql.SQL("listen {}").format(sql.Identifier(segments.STAGED_CHANNEL)))

    def step(self) -> int:
        """Move the next run, and add to the queues of consumers; returns -1 if there was nothing to do.

        Returns the number of events added.
        """
        staged, pending = self._read_state()
        if staged is None:
            return -1
        self._require_continued()
        started = time.monotonic()
        try:
            moved = self._step(staged, pending)
        except WatermarkMovedError:  # the worker wrote a batch directly, after it had found nothing staged
            self._transfers.forget()
            return 0
        left = BUSY_PACE - (time.monotonic() - started) if moved >= BUSY_ROWS and not self._stopping() else 0.0
        progress = self._queues.fill(left if moved >= 0 else None, self._retry_dead_letters)
        if left > 0:
            time.sleep(max(0.0, BUSY_PACE - (time.monotonic() - started)))
        return max(moved, 0) if progress else moved

    def _require_continued(self) -> None:
        """Let the log jump, if it must, before the first event that this session writes."""
        if not self._is_continued:
            jumps.require_continued(self._connection, [each.table for each in self._targets], self._source_clock)
            self._is_continued = True

    def _step(self, staged: StagingState, pending: list[Segment]) -> int:
        if self.poison is not None and self._is_still_poison(self.poison, staged):
            return -1
        run = next_run(pending, staged.watermark, staged.whole) or self._next_range(staged)
        if run is not None:
            moved = self._move(run, staged.epoch, self._prepared)
        elif staged.next_adopted is not None:
            moved = self._adopt(staged)
        else:
            moved = self._large.move(staged, pending)
        if moved > 0:
            logger.debug("staged rows were moved", extra={"action": "shuffle.moved", "events": moved})
        if self._transfers.drained >= EMPTY_AT:
            self._empty()
        return moved

    def _adopt(self, staged: StagingState) -> int:
        """Attach the tables that come next, or move their rows."""
        done = self._attacher.step(staged.epoch, staged.watermark)
        if isinstance(done, int):
            return done
        moved = self._move(done, staged.epoch)
        waiting.drop_moved(self._connection, self._source)
        return moved

    def _retry_dead_letters(self) -> bool:
        return retrying.retry(self._connection, self._source, self._targets)

    def _next_range(self, staged: StagingState) -> ShuffleRun | None:
        """Return a run with rows that were read from a table, once everything before their place is in the log."""
        place = staged.next_range
        if place is None or place > staged.complete or (staged.next_adopted or place) < place:
            return None
        return placed_ranges.run_of(
            self._connection, self._source, staged.epoch, staged.watermark, place, self._changes
        )

    def wait(self) -> None:
        """Empty drained segments; wait until something is staged or queues have their turn, at most WAKE_AFTER."""
        if self._transfers.drained or time.monotonic() >= self._empty_at:
            self._empty()
        rest = self._queues.rest
        for _ in self._connection.notifies(timeout=WAKE_AFTER if rest is None else min(rest, WAKE_AFTER), stop_after=1):
            pass

    def _empty(self) -> None:
        segments.empty_drained(self._connection)
        waiting.drop_moved(self._connection, self._source)
        self._transfers.drained = 0
        self._empty_at = time.monotonic() + EMPTY_EVERY

    @property
    def _targets(self) -> TargetTables:
        """The events tables. At the first use, the place from which the routes apply is recorded."""
        if self._opened is None:
            routes.begin(self._connection, self._source, self._table, self._routes)
            self._opened = TargetTables(self._connection, self._table, self._routes, self._retention)
            wake_readers(self._connection, self._source)
        return self._opened

    def _read_state(self) -> tuple[StagingState | None, list[Segment]]:
        return segments.read_state(self._connection, self._source)

    def _move(self, run: ShuffleRun, epoch: int, prepared: PreparedStatementCache | None = None) -> int:
        place = LogWatermark(epoch, run.after)
        try:
            return self._move_batched(run, place, prepared)
        except SeqTakenError:
            self._transfers.forget()
            return self._move(run, epoch)
        except psycopg.errors.InvalidSqlStatementName:
            self._prepared.forget()
            self._transfers.forget()
            return self._move(run, epoch)
        except psycopg.Error as error:
            if not connections.is_poison(error):
                raise
        self._transfers.forget()
        try:
            return self._move_bisecting(run, place)
        except PoisonError as stopped:
            self._transfers.forget()
            rest = poison.before(self._connection, run, stopped.poison)
            moved = self._move(rest, epoch) if rest else -1
            if self.poison is None:
                self.poison = stopped.poison
            return moved

    def _move_batched(self, run: ShuffleRun, place: LogWatermark, prepared: PreparedStatementCache | None) -> int:
        with batched_transaction.transaction(self._connection, prepared) as statements:
            transfer = self._transfers.begin(place, statements)
            self._move_all(run, transfer, transfer)
        if isinstance(run, PlacedRun) and run.only_reads and transfer.moved:
            self._changes.range_moved(*transfer.newest)
        return self._transfers.committed(transfer, len(run.drained))

    def _move_bisecting(self, run: ShuffleRun, place: LogWatermark) -> int:
        with self._connection.transaction():
            transfer = self._transfers.begin(place)
            bisecting = BisectingTransfer(self._connection, self._source, transfer, self._on_poison)
            self._move_all(run, transfer, bisecting)
        if bisecting.parked:
            counted = {"action": "shuffle.parked", "events": bisecting.parked}
            logger.warning("changes that could not be written are parked as dead letters", extra=counted)
        return self._transfers.committed(transfer, len(run.drained))

    def _move_all(self, run: ShuffleRun, transfer: RowTransfer, mover: RowTransfer | BisectingTransfer) -> None:
        for segment in run.segments:
            mover.move(segment, self._transfers.next_ordinal(segment, run.after, transfer), run.upto)
        if isinstance(run, PlacedRun):
            placed_ranges.record_moved(self._connection, run, transfer)
        if isinstance(run, WaitingRun):
            waiting.record_moved(self._connection, self._source, run.tables)
        transfer.finish(run.upto, run.drained)

    def _is_still_poison(self, known: PoisonChange, staged: StagingState) -> bool:
        """Return True if the change still cannot be written. It is tried alone, at most every PROBE_EVERY."""
        if staged.watermark >= known.commit_lsn:
            self.poison = None
            return False
        if time.monotonic() < self._probe_at:
            return True
        self._probe_at = time.monotonic() + PROBE_EVERY
        self.poison = None
        try:
            with self._connection.transaction():
                transfer = self._transfers.begin(LogWatermark(staged.epoch, staged.watermark))
                bisecting = BisectingTransfer(self._connection, self._source, transfer, self._on_poison)
                bisecting.move(known.segment, known.ordinal, known.commit_lsn, known.ordinal)
                raise psycopg.Rollback
        except PoisonError as stopped:
            self.poison = stopped.poison
        self._transfers.forget()
        return self.poison is not None
