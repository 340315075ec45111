"""A part of a catch-up that becomes partitions: its rows have reserved seqs, and are stored when its turn comes.

The turn comes when everything before the part is staged and in the log. Until then all of the part is one transaction:
so its rows commit in the order of the log, and a snapshot that has one of them has all rows before it. After a crash
before its turn, the part is read again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline.errors import ReadAgainError
from pipeline.log.staging import batch as batch_parts
from pipeline.log.staging.batch import ChangeBatch
from pipeline.log.staging.choose_path import RunState
from pipeline.log.staging.worker_claim import WorkerClaim
from pipeline.log.table import EventsTable
from pipeline.log.writing import partition_run as runs
from pipeline.log.writing.event_maker import EventMaker
from pipeline.log.writing.partition_run import PartitionRun
from pipeline.log.writing.partition_segment import PartitionSegment
from pipeline.log.writing.partitioned_path import PartitionedPath
from pipeline.log.writing.segment_sizes import FEWEST, SETTLE_AFTER, SegmentSizes
from pipeline.postgres.pipelined_copy import OpenCopy
from pipeline.postgres.queries import literals, statement

logger = logging.getLogger(__name__)

LOOK_EVERY = 0.1
"""Seconds between two checks that the part's turn has come."""
STOPPING_LONGEST = 3.0
"""Seconds that a part which must end waits for the rows before it; after that its rows are moved."""
_PACKAGE = "log.writing"


@dataclass(frozen=True)
class PartTurn:
    """The turn of a part, with which its writer can write partitions with seqs from `first_seq` on.

    `give_up` stores that the part is staged from now on. `stopping` returns True if the writer must not wait for its
    turn any longer.
    """

    first_seq: int
    give_up: Callable[[], Awaitable[object]]
    stopping: Callable[[], bool]


class PartPath(PartitionedPath):
    """Takes batches of a part, and stores them from its turn on."""

    def __init__(
        self,
        connection: AsyncConnection[TupleRow],
        claim: WorkerClaim,
        table: EventsTable,
        maker: EventMaker,
        sizes: SegmentSizes,
        turn: PartTurn,
    ) -> None:
        super().__init__(connection, claim, table, maker, sizes)
        self._turn = turn
        self._left = False
        self._look_at = 0.0

    @property
    def state(self) -> RunState:
        """The open segment, and whether one may begin: none does after one whose rows are moved."""
        segment = self._segment
        return RunState(
            may_begin=not self._left,
            is_filling=segment is not None,
            is_inside=segment is not None and segment.is_inside,
        )

    async def settle(self) -> None:
        """Store the segment's rows if no batch arrived for a while and the part's turn has come."""
        segment, now = self._segment, time.monotonic()
        if segment is None or segment.is_inside or now < max(self._taken_at + SETTLE_AFTER, self._look_at):
            return
        self._look_at = now + LOOK_EVERY
        async with self._refusing():
            if await self._is_reached(segment):
                await self._store(segment)
            elif self._sizes.is_worth(segment.open_rows, segment.run.events):
                await segment.finish()

    async def finish(self) -> None:
        """Store the segment's whole transactions once the part's turn has come.

        Raises ReadAgainError if it must stop.
        """
        if (segment := self._segment) is not None:
            async with self._refusing():
                await self._finish(segment)

    async def _finish(self, segment: PartitionSegment) -> None:
        await segment.back()
        while segment.rows and not await self._is_reached(segment):
            if self._turn.stopping():
                await self.abandon()
                raise ReadAgainError("a part whose turn has not come is left, and will be read again")
            if segment.open_rows and self._sizes.is_worth(segment.rows, segment.run.events):
                await segment.finish()  # all parts do so in parallel; at its turn a part would delay the next one
            else:
                await asyncio.sleep(LOOK_EVERY)
        await self._store(segment)

    async def _accept(self, batch: ChangeBatch) -> ChangeBatch | None:
        segment = self._segment or await self._open(self._run or await self._begin(), FEWEST)
        events = [] if batch.places_range else await self._maker.events(batch.rows, segment.next_seq, segment.session)
        if batch.places_range or len(events) < len(batch.rows):
            return await self._take_before(segment, batch, events)
        # Each table keeps its locks until the end. Tables grow with the part, so that there are few.
        segment.largest = max(FEWEST, self._sizes.full(segment.run.events + segment.rows))
        for part in batch_parts.split(batch):
            await segment.add(part, events[: len(part.rows)])
            events = events[len(part.rows) :]
        is_full = not segment.is_inside and segment.rows >= self._sizes.full(segment.run.events)
        if is_full and await self._is_reached(segment):
            await self._store(segment)
        return None

    async def _begin(self) -> PartitionRun:
        """Begin the run of the part's segments, which gets its number when a segment is stored."""
        claim = self._claim
        values = {**runs.values_of(claim, self._table), "first_seq": self._turn.first_seq}
        ((epoch, events, first_seq),) = await OpenCopy(self._connection).execute(
            statement(_PACKAGE, "begin_part") % literals(**values)
        )
        seq, of_log, rows = (int(number or b"") for number in (first_seq, epoch, events))
        run = self._run = PartitionRun(claim.source, claim.generation, 0, seq, of_log, rows, worker=claim.worker)
        fields = {"action": "adoption.part_begun", "part": run.worker, "from_seq": run.next_seq}
        logger.info("a part of a backlog becomes partitions of %s", self._table, extra=fields)
        return run

    async def _take_before(self, segment: PartitionSegment, batch: ChangeBatch, events: list[bytes]) -> ChangeBatch:
        """Store the whole transactions before a row that only the shuffler can write; returns the rest of the batch.

        If the part's turn has not come, all of the part is read again and staged.
        """
        if not await self._is_reached(segment):
            has_rows = segment.rows > 0
            await self.abandon()
            if not has_rows:
                return batch
            await self._turn.give_up()
            raise ReadAgainError("a part has changes that only the shuffler can write: it is read again and staged")
        rest = batch
        if events and (found := batch_parts.before(batch, len(events))) is not None:
            await segment.add(found[0], events[: len(found[0].rows)])
            rest = found[1]
        await self._store_before(segment, rest.first_lsn)
        return rest

    def _stored(self, segment: PartitionSegment, *, attaches: bool) -> None:
        self._left = not attaches

    async def _stage(self, until: int) -> None:
        """Let all of the part be staged."""
        await self._turn.give_up()

    async def _comes_next(self, segment: PartitionSegment) -> bool:
        """Return True once everything before the segment is in the log, after beginning and ending a run for it.

        The run keeps the watermark locked until the segment commits.
        """
        values = literals(**runs.values_of(self._claim, self._table), not_before=0, highest=segment.first_seq)

        async def read_progress() -> runs.DrainProgress | None:
            found = await segment.ask(statement("log.staging.frontier", "is_drained") % values)
            return runs.DrainProgress(found[0][0] == b"t", found[0][1], found[0][2] == b"t") if found else None

        if not await runs.wait_until_drained(read_progress, STOPPING_LONGEST if self._turn.stopping() else None):
            return False
        await segment.ask(f"savepoint next; {runs.LOCK_TIMEOUT}")
        with suppress(psycopg.errors.LockNotAvailable):
            if await segment.ask(statement("log.staging", "adoptable") % values) == [(None,)]:
                await segment.ask(statement("log.staging", "hold_watermark") % values)
                found = await segment.ask(statement("log.staging.frontier", "begin_run") % values)
                if found:
                    segment.run.number = int(found[0][0] or b"")
                    await segment.ask(statement(_PACKAGE, "end_run") % values)
                    return True
        await segment.ask("rollback to savepoint next")
        return False

    async def _is_reached(self, segment: PartitionSegment) -> bool:
        values = literals(source=self._claim.source, worker=self._claim.worker)
        return bool(await segment.ask(statement(_PACKAGE, "is_reached") % values))
