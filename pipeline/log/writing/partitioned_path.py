"""The partitioned path: batches of a backlog fill tables that the shuffler attaches as partitions.

This is the base of worker 0's path and of the path of catch-up parts: it opens, stores and abandons segments.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from pipeline.errors import ReadAgainError
from pipeline.log.staging.batch import ChangeBatch
from pipeline.log.staging.choose_path import RunState
from pipeline.log.staging.worker_claim import WorkerClaim
from pipeline.log.table import EventsTable
from pipeline.log.writing.event_maker import EventMaker
from pipeline.log.writing.partition_run import PartitionRun
from pipeline.log.writing.partition_segment import PartitionSegment
from pipeline.log.writing.segment_sizes import SegmentSizes
from pipeline.postgres import connections

logger = logging.getLogger(__name__)


class PartitionedPath(ABC):
    """Takes batches into segments, one after the other, and returns the rest of a batch that it declines."""

    def __init__(
        self,
        connection: AsyncConnection[TupleRow],
        claim: WorkerClaim,
        table: EventsTable,
        maker: EventMaker,
        sizes: SegmentSizes,
    ) -> None:
        self._connection, self._claim = connection, claim
        self._table, self._maker, self._sizes = table, maker, sizes
        self._run: PartitionRun | None = None
        self._segment: PartitionSegment | None = None
        self._taken_at, self._last_lsn = 0.0, 0
        self.stored = claim.position
        """The position before which everything is stored durably, as far as this path has stored it."""

    @property
    @abstractmethod
    def state(self) -> RunState:
        """The open run and segment, and whether new ones may begin."""

    @property
    def holds(self) -> bool:
        """True while a segment is being filled: its rows are not stored, and it occupies the connection."""
        return self._segment is not None

    async def accept(self, batch: ChangeBatch) -> ChangeBatch | None:
        """Add the batch to a segment, perhaps a new one. Returns the rest that it declines; then no run is open.

        Raises FencedError, and ReadAgainError if rows that were taken must be read again and staged.
        """
        self._last_lsn = batch.last_lsn
        async with self._refusing():
            rest = await self._accept(batch)
        if rest is None:
            self._taken_at = time.monotonic()
        return rest

    @abstractmethod
    async def settle(self) -> None:
        """Store the segment's rows if the backlog has ended or no batch arrived for a while."""

    @abstractmethod
    async def finish(self) -> None:
        """Store the segment's whole transactions, without an incomplete one, and end the run."""

    async def abandon(self) -> None:
        """Roll back the rows that are not stored."""
        if (segment := self._segment) is not None:
            self._segment = None
            await segment.abandon()

    @abstractmethod
    async def _accept(self, batch: ChangeBatch) -> ChangeBatch | None:
        """Take the batch; returns the rest that is declined."""

    @abstractmethod
    async def _comes_next(self, segment: PartitionSegment) -> bool:
        """Return True if a finished segment has the next seqs of the log; otherwise its rows are moved."""

    @abstractmethod
    def _stored(self, segment: PartitionSegment, *, attaches: bool) -> None:
        """Note that a segment is stored."""

    @abstractmethod
    async def _stage(self, until: int) -> None:
        """Prepare to read again what is not stored: rows up to this LSN, or more, are staged then."""

    async def _open(self, run: PartitionRun, largest: int) -> PartitionSegment:
        """Begin the next segment of the run, with tables of at most `largest` rows."""
        segment = PartitionSegment(self._connection, self._table, run, largest)
        await segment.begin()
        self._segment = segment
        return segment

    async def _store(self, segment: PartitionSegment) -> None:
        """Commit the segment, which ends with a whole transaction of the source. Raises FencedError."""
        if not segment.rows:
            await self.abandon()
            return
        attaches = self._sizes.is_worth(segment.rows, segment.run.events)
        if attaches:
            await segment.finish()  # while no other part waits for this one
            attaches = await self._comes_next(segment)
        position = await segment.commit(attaches=attaches)
        self._segment = None
        if position is None:
            raise self._claim.fenced()
        self.stored = max(self.stored, position)
        run = segment.run
        run.events += segment.rows
        self._stored(segment, attaches=attaches)
        fields = {"rows": segment.rows, "run": run.number, "worker": run.worker, "attaches": attaches}
        logger.debug("a segment is filled", extra={"action": "adoption.filled", **fields})

    async def _store_before(self, segment: PartitionSegment, lsn: int) -> None:
        """Store the whole transactions before a change of transaction `lsn` that only the shuffler can write."""
        begun = segment.is_inside
        await segment.back()
        await self._store(segment)
        if begun:
            await self._stage(lsn)
            raise ReadAgainError(
                "a transaction has changes that only the shuffler can write: it is read again and staged"
            )

    @asynccontextmanager
    async def _refusing(self) -> AsyncIterator[None]:
        """Raise ReadAgainError if the server refuses a row: rows that are not stored are read again and staged."""
        try:
            yield
        except psycopg.Error as error:
            lost = self._connection.info.transaction_status == TransactionStatus.UNKNOWN
            if lost or not connections.is_poison(error):
                raise
            await self.abandon()
            await self._stage(self._last_lsn)
            cause = connections.cause_of(error)
            raise ReadAgainError(
                f"a change cannot be written: {cause}; what came with it is read again and staged"
            ) from error
