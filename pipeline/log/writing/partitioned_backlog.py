"""The partitioned path of worker 0, which decides at which transactions segments of a backlog begin and end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline.log.jumps import SourceClock
from pipeline.log.staging import batch as batch_parts
from pipeline.log.staging.batch import ChangeBatch
from pipeline.log.staging.choose_path import RunState
from pipeline.log.staging.worker_claim import WorkerClaim
from pipeline.log.table import EventsTable
from pipeline.log.writing import event_rows
from pipeline.log.writing import partition_run as runs
from pipeline.log.writing.event_maker import EventMaker
from pipeline.log.writing.partition_run import PartitionRun
from pipeline.log.writing.partition_segment import PartitionSegment
from pipeline.log.writing.partitioned_path import PartitionedPath
from pipeline.log.writing.segment_sizes import SETTLE_AFTER, SegmentSizes
from pipeline.postgres.pipelined_copy import OpenCopy

logger = logging.getLogger(__name__)

_NOT_BEFORE = "select coalesce(max(not_before), 0) from pipeline.adoptions where source_id = %(source)s"
"""Read the transaction up to which a worker must stage; 0 before the first run."""


class BacklogPath(PartitionedPath):
    """Takes batches of worker 0 while the source is far ahead, in runs.

    `behind` returns how many bytes of WAL the source is ahead of the worker, None if that is unknown. `clock` is the
    source's, microseconds since 1970: no run begins above the seq that a jump would take.
    """

    def __init__(
        self,
        connection: AsyncConnection[TupleRow],
        claim: WorkerClaim,
        table: EventsTable,
        maker: EventMaker,
        sizes: SegmentSizes,
        behind: Callable[[], int | None],
        clock: SourceClock,
    ) -> None:
        super().__init__(connection, claim, table, maker, sizes)
        self._behind, self._clock = behind, clock
        self._not_before: int | None = None
        self._pause = self._pause_until = 0.0

    @property
    def state(self) -> RunState:
        """The open run and segment, and whether the source is far enough ahead for a new run."""
        behind, run, segment = self._behind(), self._run, self._segment
        is_backlog = behind is not None and self._sizes.is_backlog(behind)
        return RunState(
            may_begin=is_backlog and time.monotonic() >= self._pause_until,
            is_begun=run is not None,
            may_continue=run is not None and run.may_continue,
            is_filling=segment is not None,
            is_inside=segment is not None and segment.is_inside,
            is_near=behind is not None and self._sizes.is_near(behind),
        )

    async def settle(self) -> None:
        """End the segment if the backlog has ended: the source is hardly ahead, or no batch arrived for a while."""
        inside = self._segment is not None and self._segment.is_inside
        if self._run is None or inside:
            return
        if self.state.is_near or time.monotonic() - self._taken_at >= SETTLE_AFTER:
            await self.finish()

    async def finish(self) -> None:
        """End the segment at its last whole transaction; nothing after that is stored."""
        async with self._refusing():
            if self._segment is not None:
                await self._segment.back()
                await self._store(self._segment)
            await self._leave_run()

    async def _accept(self, batch: ChangeBatch) -> ChangeBatch | None:
        rest = await self._take_into_run(batch)
        if rest is not None:
            await self._leave_run()
        return rest

    async def _take_into_run(self, batch: ChangeBatch) -> ChangeBatch | None:
        if (begun := await self._run_of(batch)) is None:
            return batch
        run, events = begun
        if batch.places_range or len(events) < len(batch.rows):
            return await self._take_before(run, batch, events)
        for number, part in enumerate(batch_parts.split(batch)):
            if not await self._add(run, part, events[: len(part.rows)]):
                return part if number else batch
            events = events[len(part.rows) :]
        return None

    async def _take_before(self, run: PartitionRun, batch: ChangeBatch, events: list[bytes]) -> ChangeBatch:
        """Take the whole transactions of these events, before one for the shuffler only, and end the segment.

        Returns the rest of the batch.
        """
        rest = batch
        if events and (found := batch_parts.before(batch, len(events))) is not None:
            whole = found[0]
            if await self._add(run, whole, events[: len(whole.rows)]):
                rest = found[1]
        if self._segment is not None:
            await self._store_before(self._segment, rest.first_lsn)
        return rest

    async def _add(self, run: PartitionRun, part: ChangeBatch, events: list[bytes]) -> bool:
        """Add a part of a batch; False if the run has ended before it."""
        if not run.may_continue:
            return False
        segment = self._segment or await self._open(run, self._sizes.largest)
        await segment.add(part, events)
        if not segment.is_inside and segment.rows >= self._sizes.full(run.events):
            await self._store(segment)
        return True

    async def _comes_next(self, segment: PartitionSegment) -> bool:
        return True  # no other session hands out seqs during the run

    def _stored(self, segment: PartitionSegment, *, attaches: bool) -> None:
        """End the run after a segment that was too small for a partition."""
        segment.run.may_continue = segment.run.may_continue and attaches
        self._pause = 0.0 if attaches else self._sizes.pause(self._pause)
        self._pause_until = time.monotonic() + self._pause

    async def _stage(self, until: int) -> None:
        await self._leave_run(until)

    async def _leave_run(self, not_before: int = 0) -> None:
        if (ended := self._run) is None:
            return
        self._run, self._not_before = None, max(self._not_before or 0, not_before)
        await runs.end(self._connection, ended, not_before)

    async def _run_of(self, batch: ChangeBatch) -> tuple[PartitionRun, list[bytes]] | None:
        """Return the batch's run, and its events before the first row that is not plain; None if it has no run."""
        if (segment := self._segment) is not None:
            return segment.run, await self._events(batch, segment.next_seq, segment.session)
        session = OpenCopy(self._connection)
        if (run := self._run) is None:
            return await self._begin(batch, session)
        return run, await self._events(batch, run.next_seq, session)

    async def _begin(self, batch: ChangeBatch, session: OpenCopy) -> tuple[PartitionRun, list[bytes]] | None:
        """Begin a run with this batch; None if no run may begin."""
        events = await self._events(batch, 0, session)
        if not self._is_plain(batch, len(events)) or batch.first_lsn <= await self._staged_until():
            return None
        found = await runs.begin_drained(self._connection, self._claim, self._table, self._clock)
        if not isinstance(found, PartitionRun):
            self._pause = self._sizes.pause(self._pause)
            self._pause_until = time.monotonic() + (self._sizes.stay_away if found else self._pause)
            return None
        self._run = found
        fields = {"action": "adoption.begun", "run": found.number, "from_seq": found.next_seq, "behind": self._behind()}
        logger.info("a backlog becomes partitions of %s", self._table, extra=fields)
        return found, event_rows.numbered(events, found.next_seq)

    async def _events(self, batch: ChangeBatch, seq: int, session: OpenCopy) -> list[bytes]:
        return [] if batch.places_range else await self._maker.events(batch.rows, seq, session)

    def _is_plain(self, batch: ChangeBatch, events: int) -> bool:
        """Return True if the run can take at least half of a batch whose first `events` rows are plain."""
        if events == len(batch.rows):
            return True
        found = batch_parts.before(batch, events)
        return found is not None and 2 * len(found[0].rows) >= len(batch.rows)

    async def _staged_until(self) -> int:
        if self._not_before is None:
            query = _NOT_BEFORE
            found = await (await self._connection.execute(query, {"source": self._claim.source})).fetchone()
            self._not_before = int(found[0]) if found else 0
        return self._not_before
