"""A part of a catch-up that becomes partitions: its rows have seqs of their own, and are stored once it is its turn.

All of it is one transaction until everything before the part is staged and in the log: so rows commit in the order of
the log here, too, and a snapshot that has one of them has all before it. A crash before that costs reading it again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline.errors import ReadAgain
from pipeline.log.staging import batch as batch_parts
from pipeline.log.staging.batch import Batch
from pipeline.log.table import EventsTable
from pipeline.log.writing.partitioned import run as runs
from pipeline.log.writing.partitioned.run import Run
from pipeline.log.writing.partitioned.segment import Segment
from pipeline.log.writing.partitioned.segment_writer import SegmentWriter
from pipeline.log.writing.partitioned.sizes import FEWEST, SETTLE_AFTER, Sizes
from pipeline.log.writing.staged import Writer
from pipeline.postgres.open_copy import OpenCopy
from pipeline.postgres.queries import literals, statement

logger = logging.getLogger(__name__)

LOOK_EVERY = 0.1
"""Seconds between two looks whether it is the part's turn."""
STOPPING_LONGEST = 3.0
"""Seconds that a part which is to end waits for what comes before it: then it is moved."""
_PACKAGE = "log.writing.partitioned"


class PartWriter(SegmentWriter):
    """Takes batches of a part, stored from its turn on."""

    def __init__(
        self,
        connection: AsyncConnection[TupleRow],
        writer: Writer,
        table: EventsTable,
        sizes: Sizes,
        first_seq: int,
        give_up: Callable[[], Awaitable[object]],
        stopping: Callable[[], bool],
    ) -> None:
        """`first_seq`: of those that are reserved for it. `give_up` stores that it is to be staged from now on.

        `stopping`: whether its turn is not to be waited for.
        """
        super().__init__(connection, writer, table, sizes)
        self._first_seq, self._give_up, self._stopping = first_seq, give_up, stopping
        self._left = False
        self._look_at = 0.0

    async def settle(self) -> None:
        """Store what it has, if nothing came for a while and it is the part's turn."""
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
        """Store its whole transactions, once it is the part's turn. Raises ReadAgain when that is not waited for."""
        if (segment := self._segment) is not None:
            async with self._refusing():
                await self._finish(segment)

    async def _finish(self, segment: Segment) -> None:
        await segment.back()
        while segment.rows and not await self._is_reached(segment):
            if self._stopping():
                await self._abandon()
                raise ReadAgain("a part whose turn has not come is left, and will be read again")
            if segment.open_rows and self._sizes.is_worth(segment.rows, segment.run.events):
                await segment.finish()  # all parts do so at once; at its turn one would wait for another
            else:
                await asyncio.sleep(LOOK_EVERY)
        await self._store(segment)

    async def _take(self, batch: Batch) -> Batch | None:
        if self._segment is None and (self._left or not batch.rows or batch.ends_staged or self._begun is not None):
            return batch
        segment = self._segment or await self._open(self._run or await self._begin(), FEWEST)
        events = [] if batch.places_range else await self._maker.events(batch.rows, segment.next_seq, segment.session)
        if batch.places_range or len(events) < len(batch.rows):
            return await self._take_before(segment, batch, events)
        # Each table has its locks until the end: they grow with the part, so that there are few.
        segment.largest = max(FEWEST, self._sizes.full(segment.run.events + segment.rows))
        for part in batch_parts.split(batch):
            await segment.add(part, events[: len(part.rows)])
            events = events[len(part.rows) :]
        is_full = not segment.is_inside and segment.rows >= self._sizes.full(segment.run.events)
        if is_full and await self._is_reached(segment):
            await self._store(segment)
        return None

    async def _begin(self) -> Run:
        """What its segments belong to; no run of the log's yet."""
        writer = self._writer
        values = {**runs.values_of(writer, self._table), "first_seq": self._first_seq}
        ((epoch, events, first_seq),) = await OpenCopy(self._connection).execute(
            statement(_PACKAGE, "begin_part") % literals(**values)
        )
        seq, of_log, rows = (int(number or b"") for number in (first_seq, epoch, events))
        run = self._run = Run(writer.source, writer.generation, 0, seq, of_log, rows, worker=writer.worker)
        told = {"action": "adoption.part_begun", "part": run.worker, "from_seq": run.next_seq}
        logger.info("a part of a backlog becomes partitions of %s", self._table, extra=told)
        return run

    async def _take_before(self, segment: Segment, batch: Batch, events: list[bytes]) -> Batch:
        """A row is for the shuffler only: take the whole transactions before it, and store them; returns the rest.

        Where it is not the part's turn yet, all of the part is read again, and staged.
        """
        if not await self._is_reached(segment):
            has_rows = segment.rows > 0
            await self._abandon()
            if not has_rows:
                return batch
            await self._give_up()
            raise ReadAgain("a part has changes that only the shuffler can write: it is read again and staged")
        rest = batch
        if events and (found := batch_parts.before(batch, len(events))) is not None:
            await segment.add(found[0], events[: len(found[0].rows)])
            rest = found[1]
        await self._store_before(segment, rest.first_lsn)
        return rest

    def _stored(self, segment: Segment, *, attaches: bool) -> None:
        self._left = not attaches

    async def _stage(self, until: int) -> None:
        """All of the part."""
        await self._give_up()

    async def _comes_next(self, segment: Segment) -> bool:
        """Once all before it is in the log; then a run begins with it, and ends with it, and locks the watermark."""
        values = literals(**runs.values_of(self._writer, self._table), not_before=0, highest=segment.first_seq)

        async def look() -> runs.Progress | None:
            found = await segment.ask(statement(_PACKAGE, "is_drained") % values)
            return runs.Progress(found[0][0] == b"t", found[0][1], found[0][2] == b"t") if found else None

        if not await runs.drained(look, STOPPING_LONGEST if self._stopping() else None):
            return False
        await segment.ask(f"savepoint next; {runs.LOCK_TIMEOUT}")
        with suppress(psycopg.errors.LockNotAvailable):
            if await segment.ask(statement("log.staging", "adoptable") % values) == [(None,)]:
                await segment.ask(statement("log.staging", "hold_watermark") % values)
                found = await segment.ask(statement(_PACKAGE, "begin_run") % values)
                if found:
                    segment.run.number = int(found[0][0] or b"")
                    await segment.ask(statement(_PACKAGE, "end_run") % values)
                    return True
        await segment.ask("rollback to savepoint next")
        return False

    async def _is_reached(self, segment: Segment) -> bool:
        values = literals(source=self._writer.source, worker=self._writer.worker)
        return bool(await segment.ask(statement(_PACKAGE, "is_reached") % values))


def attach(
    connection: AsyncConnection[TupleRow],
    writer: Writer,
    table: EventsTable,
    threshold: int | None,
    first_seq: int,
    give_up: Callable[[], Awaitable[object]],
    stopping: Callable[[], bool],
) -> None:
    """Let the writer of a part, on this connection, write it so; without a `threshold` it stages it."""
    if threshold is not None:
        writer.backlog = PartWriter(connection, writer, table, Sizes(threshold), first_seq, give_up, stopping)
