"""The partitioned path: batches of a backlog fill tables that the shuffler attaches as partitions.

Worker 0 and the parts of a catch-up share what is here: how a segment is opened, stored and abandoned.
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

from pipeline.errors import ReadAgain
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
    """Takes batches into segments, one after the other, and says which rest of a batch it declines."""

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
        """Everything before it is stored, durably, as far as this path has stored it."""

    @property
    @abstractmethod
    def state(self) -> RunState:
        """What is begun, and whether more may begin."""

    @property
    def holds(self) -> bool:
        """Whether a segment is being filled: what it has is not stored, and the connection is its own."""
        return self._segment is not None

    async def take(self, batch: ChangeBatch) -> ChangeBatch | None:
        """Add the batch to a segment, perhaps a new one. Returns what of it is declined; then no run is open.

        Raises ReadAgain when what was taken has to be staged after all, and Fenced.
        """
        self._last_lsn = batch.last_lsn
        async with self._refusing():
            rest = await self._take(batch)
        if rest is None:
            self._taken_at = time.monotonic()
        return rest

    @abstractmethod
    async def settle(self) -> None:
        """Store what it has, if the backlog has ended or nothing came for a while."""

    @abstractmethod
    async def finish(self) -> None:
        """Store its whole transactions, of one that goes on nothing, and end the run."""

    async def abandon(self) -> None:
        """Roll back what is not stored."""
        if (segment := self._segment) is not None:
            self._segment = None
            await segment.abandon()

    @abstractmethod
    async def _take(self, batch: ChangeBatch) -> ChangeBatch | None:
        """Return what of the batch is declined."""

    @abstractmethod
    async def _comes_next(self, segment: PartitionSegment) -> bool:
        """Whether a segment that is about to be stored, and has its indexes, has the next seqs; else it is moved."""

    @abstractmethod
    def _stored(self, segment: PartitionSegment, *, attaches: bool) -> None:
        """A segment is stored."""

    @abstractmethod
    async def _stage(self, until: int) -> None:
        """What is not stored will be read again: up to this LSN, or more, it is to be staged then."""

    async def _open(self, run: PartitionRun, largest: int) -> PartitionSegment:
        """Begin the next segment of the run, with tables of so many rows."""
        segment = PartitionSegment(self._connection, self._table, run, largest)
        await segment.begin()
        self._segment = segment
        return segment

    async def _store(self, segment: PartitionSegment) -> None:
        """Commit what it has, which ends with a transaction of the source. Raises Fenced."""
        if not segment.rows:
            await self.abandon()
            return
        attaches = self._sizes.is_worth(segment.rows, segment.run.events)
        if attaches:
            await segment.finish()  # before it is its turn: nobody waits for it meanwhile
            attaches = await self._comes_next(segment)
        position = await segment.commit(attaches=attaches)
        self._segment = None
        if position is None:
            raise self._claim.fenced()
        self.stored = max(self.stored, position)
        run = segment.run
        run.events += segment.rows
        self._stored(segment, attaches=attaches)
        told = {"rows": segment.rows, "run": run.number, "worker": run.worker, "attaches": attaches}
        logger.debug("a segment is filled", extra={"action": "adoption.filled", **told})

    async def _store_before(self, segment: PartitionSegment, lsn: int) -> None:
        """The change that comes next, of the transaction `lsn`, is for the shuffler only: store what is whole."""
        begun = segment.is_inside
        await segment.back()
        await self._store(segment)
        if begun:
            await self._stage(lsn)
            raise ReadAgain("a transaction has changes that only the shuffler can write: it is read again and staged")

    @asynccontextmanager
    async def _refusing(self) -> AsyncIterator[None]:
        """Where the server refuses a row, what is not stored is read again, and staged: raises ReadAgain."""
        try:
            yield
        except psycopg.Error as error:
            lost = self._connection.info.transaction_status == TransactionStatus.UNKNOWN
            if lost or not connections.is_poison(error):
                raise
            await self.abandon()
            await self._stage(self._last_lsn)
            cause = connections.cause_of(error)
            raise ReadAgain(
                f"a change cannot be written: {cause}; what came with it is read again and staged"
            ) from error
