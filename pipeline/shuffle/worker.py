"""The shuffler: the one writer of the events tables, on the session that holds the shuffle role's lock."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import psycopg
from psycopg import sql

from pipeline.db import Connection
from pipeline.db import sql as statement
from pipeline.deliveries import consumers
from pipeline.deliveries.consumers import RecordsConsumer
from pipeline.events.log import EventsTable
from pipeline.routing import Route
from pipeline.shuffle import folding, poison, retrying, routes, together
from pipeline.shuffle.filling import Filler
from pipeline.shuffle.plan import Run, next_run
from pipeline.shuffle.poison import Careful, OnPoison, Poison, Stopped
from pipeline.shuffle.targets import Targets
from pipeline.shuffle.together import Prepared, Together
from pipeline.shuffle.transfer import Place, SeqTaken, Transfer, wake_readers
from pipeline.staging import segments
from pipeline.staging.segments import Segment

logger = logging.getLogger(__name__)

WAKE_AFTER = 0.5
"""Seconds without a NOTIFY after which it looks for itself."""
AHEAD_SEGMENTS = 4
"""Full segments of a transaction that is not staged whole from which on moving begins before its end has come."""
AHEAD_PATIENCE = 3.0
"""Seconds without another segment after which what was moved ahead is rolled back, so that no snapshot is held."""
AHEAD_POLL = 0.01
BUSY_PACE, BUSY_ROWS = 0.012, 100
"""Seconds a run takes at least when it moved so many rows: transactions that come fast share the cost of one."""
LOOK_EVERY = 0.1
"""Seconds between looks for consumers that are behind, while there is something to move."""
PROBE_EVERY = 1.0
"""Seconds between two looks whether a change that could not be written still cannot."""
EMPTY_AT = 16
"""Drained segments that are emptied even while there is more to move."""
EMPTY_EVERY = 1.0
"""Seconds between looks for segments that others have drained."""


@dataclass(frozen=True)
class _Staged:
    epoch: int
    watermark: int
    complete: int
    generation: str


class Shuffler:
    """Moves whole transactions from staging into the events tables: what no route matches into `table`.

    `connection` must be in autocommit mode, hold the shuffle role's lock and be used by nobody else: while the lock
    is held there is no other writer, so seq becomes visible in order and a reader of `seq > last` misses nothing.
    Routes begin to hold at the watermark; the first step raises ConfigError for a `table` that cannot.
    `stopping` is asked while a large transaction is awaited. `retention`: seconds that events are kept, for the size of
    partitions. `on_poison`: what to do about a change that cannot be written; with "stop", `poison` says which it is,
    and it is tried again now and then.
    """

    def __init__(
        self,
        connection: Connection,
        source: uuid.UUID,
        table: EventsTable,
        stopping: Callable[[], bool],
        retention: float | None = None,
        routes: Sequence[Route] = (),
        on_poison: OnPoison = "stop",
    ) -> None:
        self._connection = connection
        self._source = source
        self._stopping = stopping
        self._table, self._routes, self._retention = table, tuple(routes), retention
        self._opened: Targets | None = None
        self._prepared = Prepared(connection)
        self._filler = Filler(connection, source)
        self._stopped_in: tuple[int, int] | None = None
        self._not_ahead_of = 0
        self._drained = 0
        self._look_at = 0.0
        self._empty_at = 0.0
        self._consumers: list[RecordsConsumer] | None = None
        self._on_poison = on_poison
        self._probe_at = 0.0
        self.poison: Poison | None = None
        """The change that is in the way of all that is staged after it."""
        # G4: a reader must never see a seq that an immediate shutdown takes back (facts: an asynchronous commit did).
        connection.execute(
            "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'"
        )
        connection.execute("set default_transaction_isolation = 'read committed'")
        connection.execute("set jit = off")
        connection.execute(sql.SQL("listen {}").format(sql.Identifier(segments.STAGED_CHANNEL)))

    def step(self) -> int:
        """Move the next run, and bring consumers on that are behind; -1 when there was nothing to do.

        Returns how many events it added.
        """
        staged, pending = self._look()
        if staged is None:
            return -1
        moved = self._step(staged, pending)
        now = time.monotonic()
        if moved < 0 or now >= self._look_at:
            progress = retrying.retry(self._connection, self._source, self._targets)
            self._consumers = consumers.look(self._connection)
            progress |= folding.catch_up(self._connection, self._source, self._targets.default.table, self._consumers)
            self._look_at = now if progress else now + LOOK_EVERY
            return max(moved, 0) if progress else moved
        return moved

    def _step(self, staged: _Staged, pending: list[Segment]) -> int:
        started = time.monotonic()
        if self.poison is not None and self._is_in_the_way(self.poison, staged):
            return -1
        run = next_run(pending, staged.watermark, staged.complete)
        moved = self._move(run, staged.epoch, self._prepared) if run else self._move_ahead(staged, pending)
        if moved > 0:
            logger.debug("moved", extra={"action": "shuffle.moved", "events": moved})
        if self._drained >= EMPTY_AT:
            self._empty()
        if moved >= BUSY_ROWS and not self._stopping():
            time.sleep(max(0.0, BUSY_PACE - (time.monotonic() - started)))
        return moved

    def wait(self) -> None:
        """Until something is staged, at most WAKE_AFTER; meanwhile drained segments are emptied."""
        if self._drained or time.monotonic() >= self._empty_at:
            self._empty()
        for _ in self._connection.notifies(timeout=WAKE_AFTER, stop_after=1):
            pass

    def _empty(self) -> None:
        segments.empty_drained(self._connection)
        self._drained = 0
        self._empty_at = time.monotonic() + EMPTY_EVERY

    @property
    def _targets(self) -> Targets:
        """The tables; before the first use it is recorded from where on they hold."""
        if self._opened is None:
            routes.begin(self._connection, self._source, self._table, self._routes)
            self._opened = Targets(self._connection, self._table, self._routes, self._retention)
            wake_readers(self._connection, self._source)
        return self._opened

    def _look(self) -> tuple[_Staged | None, list[Segment]]:
        """Where staging and the log are, and the segments with rows to move, of one moment."""
        found = self._connection.execute(statement("shuffle", "look"), {"source": self._source}).fetchall()
        pending = [Segment(*row[4:]) for row in found if row[4] is not None]
        return (_Staged(*found[0][:4]) if found else None), pending

    def _move(self, run: Run, epoch: int, prepared: Prepared | None = None) -> int:
        place = Place(epoch, run.after)
        try:
            return self._move_together(run, place, prepared)
        except SeqTaken:
            self._targets.forget()
            return self._move(run, epoch)
        except psycopg.errors.InvalidSqlStatementName:
            self._prepared.forget()
            self._targets.forget()
            return self._move(run, epoch)
        except psycopg.Error as error:
            if not poison.is_poison(error):
                raise
        self._targets.forget()
        try:
            return self._move_carefully(run, place)
        except Stopped as stopped:
            self._targets.forget()
            rest = poison.before(self._connection, run, stopped.poison)
            moved = self._move(rest, epoch) if rest else -1
            if self.poison is None:
                self.poison = stopped.poison
            return moved

    def _move_together(self, run: Run, place: Place, prepared: Prepared | None) -> int:
        with together.transaction(self._connection, prepared) as statements:
            transfer = self._transfer(place, statements)
            self._move_all(run, transfer, transfer)
        return self._moved(run, transfer)

    def _move_carefully(self, run: Run, place: Place) -> int:
        with self._connection.transaction():
            transfer = self._transfer(place)
            careful = Careful(self._connection, self._source, transfer, self._on_poison)
            self._move_all(run, transfer, careful)
        if careful.parked:
            counted = {"action": "shuffle.parked", "events": careful.parked}
            logger.warning("changes that could not be written are parked as dead letters", extra=counted)
        return self._moved(run, transfer)

    def _move_all(self, run: Run, transfer: Transfer, mover: Transfer | Careful) -> None:
        for segment in run.segments:
            mover.move(segment, self._next_ordinal(segment, run.after, transfer), run.upto)
        transfer.finish(run.upto, run.drained)

    def _moved(self, run: Run, transfer: Transfer) -> int:
        self._drained += len(run.drained)
        self._stopped_in = transfer.stopped_in or self._stopped_in
        return transfer.moved

    def _is_in_the_way(self, known: Poison, staged: _Staged) -> bool:
        """Whether the change that could not be written still cannot; asked of it alone, and not all the time."""
        if staged.watermark >= known.commit_lsn:
            self.poison = None
            return False
        if time.monotonic() < self._probe_at:
            return True
        self._probe_at = time.monotonic() + PROBE_EVERY
        self.poison = None
        try:
            with self._connection.transaction():
                transfer = self._transfer(Place(staged.epoch, staged.watermark))
                careful = Careful(self._connection, self._source, transfer, self._on_poison)
                careful.move(known.segment, known.ordinal, known.commit_lsn, known.ordinal)
                raise psycopg.Rollback
        except Stopped as stopped:
            self.poison = stopped.poison
        self._targets.forget()
        return self.poison is not None

    def _move_ahead(self, staged: _Staged, pending: list[Segment]) -> int:
        """Begin with a large transaction while it is still being staged, and commit when all of it has come.

        Returns -1 when there is no such transaction, or when it did not come to its end: then nothing has happened.
        """
        full = [segment for segment in pending if segment.full and segment.last_lsn > staged.watermark]
        if len(full) < AHEAD_SEGMENTS or full[-1].last_lsn == self._not_ahead_of:
            return -1
        commit_lsn = full[-1].last_lsn
        self._targets.forget()
        stopped_in, moved = None, -1
        try:
            with self._connection.transaction():
                transfer = self._transfer(Place(staged.epoch, staged.watermark))
                drained = self._follow(transfer, staged, commit_lsn)
                if drained is None:
                    self._not_ahead_of = commit_lsn
                    raise psycopg.Rollback
                transfer.finish(commit_lsn, drained)
                moved = transfer.moved
                self._drained += len(drained)
            stopped_in = transfer.stopped_in if moved >= 0 else None
        except psycopg.Error as error:
            if not poison.is_poison(error):
                raise
            self._not_ahead_of = commit_lsn  # once it is whole, `_move` finds the row
        self._targets.forget()
        self._stopped_in = stopped_in
        return moved

    def _follow(self, transfer: Transfer, staged: _Staged, commit_lsn: int) -> list[int] | None:
        """Move segments of the open transaction as they fill; those to drain once it is whole, None to give it up."""
        seen: set[int] = set()
        patience = time.monotonic() + AHEAD_PATIENCE
        while True:
            now, there = self._look()
            if now is None or now.generation != staged.generation or self._stopping():
                return None
            whole = now.complete >= commit_lsn
            pending = [segment for segment in there if segment.first_lsn <= commit_lsn]
            # Nothing overtakes what a segment that is not full may still get.
            for segment in pending if whole else takewhile(lambda each: each.full, pending):
                if segment.id in seen or segment.last_lsn <= staged.watermark:
                    continue
                transfer.move(segment, self._next_ordinal(segment, staged.watermark, transfer), commit_lsn)
                seen.add(segment.id)
                patience = time.monotonic() + AHEAD_PATIENCE
            if whole:
                return [segment.id for segment in pending if segment.full and segment.last_lsn <= commit_lsn]
            if time.monotonic() > patience:
                return None
            time.sleep(AHEAD_POLL)

    def _transfer(self, place: Place, statements: Together | None = None) -> Transfer:
        folds = self._consumers is None or bool(self._consumers)
        statements = statements or Together(self._connection)
        return Transfer(self._connection, self._source, self._targets, self._filler, place, statements, folds=folds)

    def _next_ordinal(self, segment: Segment, after: int, transfer: Transfer) -> int:
        """Of the first row to move; only a segment that an earlier shuffler moved in part has to be asked."""
        for stopped_in in (transfer.stopped_in, self._stopped_in):
            if stopped_in and stopped_in[0] == segment.id and segment.first_lsn <= after:
                return stopped_in[1]
        if segment.first_lsn > after:
            return segment.first_ordinal
        return segments.first_ordinal_after(self._connection, segment, after)
