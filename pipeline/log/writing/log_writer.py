"""Write the log: replication and catch-up hand their batches to a `LogWriter`, which takes one of three paths."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from pipeline.config.settings import Config
from pipeline.log import table
from pipeline.log.jumps import SourceClock
from pipeline.log.partitions import LAST_SEQ, PARTITION_ROWS
from pipeline.log.staging import choose_path as paths
from pipeline.log.staging.batch import ChangeBatch
from pipeline.log.staging.choose_path import FirstStep, KnownState, LogEnd, PathReason, WritePath, choose_path
from pipeline.log.staging.worker_claim import WorkerClaim
from pipeline.log.table import EventsTable
from pipeline.log.writing import log_end
from pipeline.log.writing.direct_path import DirectPath
from pipeline.log.writing.event_maker import EventMaker
from pipeline.log.writing.partitioned_backlog import BacklogPath
from pipeline.log.writing.partitioned_part import PartPath, PartTurn
from pipeline.log.writing.partitioned_path import PartitionedPath
from pipeline.log.writing.segment_sizes import SegmentSizes
from pipeline.log.writing.staged_path import StagedPath
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.pipelined_copy import roll_back
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
"""How long a writer that ends waits for a database that does not answer."""
COUNT_EVERY = 1.0
"""Seconds after which the writer stores how many changes took which path, and checks for consumers."""
BYTES_OF_CHANGE = 16
"""The fewest bytes that a change takes in the WAL."""
BETWEEN = 2 * PARTITION_ROWS
"""Seqs left free before each part of a catch-up, for rows that are moved before it into partitions created ahead."""


Declined = dict[WritePath, PathReason | None]
"""The paths that have declined a batch."""


@dataclass(frozen=True)
class WritingSettings:
    """The settings that decide about the paths; by default everything is staged.

    `table`: the events table. `small`: whether small batches are written "at_once". `sizes`: the sizes of a
    backlog's segments, None if no backlog becomes partitions. `clock`: the source's, microseconds since 1970.
    """

    table: EventsTable = table.DEFAULT
    small: Literal["at_once", "staged"] = "staged"
    sizes: SegmentSizes | None = None
    clock: SourceClock | None = None

    @classmethod
    def of(cls, config: Config, clock: SourceClock | None = None) -> WritingSettings:
        """Return the settings of a server. If events go to several tables, no backlog becomes partitions directly."""
        threshold = None if config.routes else config.adopt_bytes
        sizes = None if threshold is None else SegmentSizes(threshold)
        return cls(EventsTable.parse(config.events_table), config.small_batches, sizes, clock)


class WriteResult(NamedTuple):
    """Everything before `position`, an LSN of the source, is stored.

    `is_durable`: the position may be confirmed to the source. `holds`: the writer has accepted more, which it stores
    later; until then only
    `append`, `settle` and `close` may be called, and the connection is the writer's.
    """

    position: int
    is_durable: bool
    holds: bool


class LogWriter:
    """The only writer of what one worker reads, under its claim.

    `append`, `advance` and `settle` raise FencedError when a newer worker has taken over, and ReadAgainError when
    something that was accepted is not stored and must be streamed again. After any error the writer can only be closed;
    after ReadAgainError the worker is claimed again. The caller owns the connection, which is that of the claim.
    """

    def __init__(
        self,
        connection: AsyncConnection[TupleRow],
        claim: WorkerClaim,
        settings: WritingSettings,
        partitioned: PartitionedPath | None,
        maker: EventMaker,
    ) -> None:
        """Use `open`."""
        self._connection, self._claim, self._settings = connection, claim, settings
        self._staged = StagedPath(connection, claim)
        self.writes_directly = paths.writes_directly(claim.worker, settings.small)
        """True if the direct path is on, so that under load commits may lie further apart; constant."""
        self._direct = DirectPath(connection, claim, settings.table, maker) if self.writes_directly else None
        self._partitioned = partitioned
        self._end: LogEnd | PathReason | None = None
        self._begun: int | None = None
        self._durable = 0  # rows that an older session stored may not be on disk
        self._counted: Counter[tuple[WritePath, PathReason | None]] = Counter()
        self._count_at = 0.0
        self._has_consumers = False
        self.position = claim.position
        """Everything before it is stored."""
        self.may_split = not self.writes_directly and partitioned is None
        """True if a batch may end in the middle of a transaction, since everything is staged; constant."""
        self.changes: Counter[tuple[WritePath, PathReason | None]] = Counter()
        """How many changes of small batches took which path, and why they were staged."""

    @classmethod
    async def open(
        cls,
        connection: AsyncConnection[TupleRow],
        claim: WorkerClaim,
        settings: WritingSettings,
        *,
        behind: Callable[[], int | None] | None = None,
        part: PartTurn | None = None,
    ) -> LogWriter:
        """Open the writer of a worker.

        `behind` returns how many bytes of WAL the source is ahead of worker 0; without it no backlog becomes
        partitions. `part`: the turn of a part of a catch-up; a part without a turn only stages.
        """
        maker = EventMaker(claim.source)
        partitioned: PartitionedPath | None = None
        if settings.sizes is not None and part is not None:
            partitioned = PartPath(connection, claim, settings.table, maker, settings.sizes, part)
        elif settings.sizes is not None and behind is not None and settings.clock is not None and not claim.worker:
            partitioned = BacklogPath(connection, claim, settings.table, maker, settings.sizes, behind, settings.clock)
        writer = cls(connection, claim, settings, partitioned, maker)
        await writer._staged.prepare()
        return writer

    async def append(self, batch: ChangeBatch, *, durable: bool) -> WriteResult:
        """Store a batch, or hold it until a run is stored. With `durable`, what is stored is on disk on return."""
        declined: Declined = {}
        rest: ChangeBatch | None = batch
        while rest is not None:
            rest = await self._append(rest, declined, durable=durable)
        return self._result()

    async def advance(self, position: int) -> WriteResult:
        """Store, durably, that the log needs nothing before `position`; earlier batches become durable too."""
        self.position = self._durable = await self._staged.store_position(position)
        if self.writes_directly:
            await self._count()
        return self._result()

    async def settle(self, *, finish: bool = False) -> WriteResult:
        """Store the rows of a run if the backlog has ended; with `finish`, its whole transactions in any case."""
        if self._partitioned is not None:
            await (self._partitioned.finish() if finish else self._partitioned.settle())
            self._follow(self._partitioned)
        return self._result()

    async def close(self) -> None:
        """Discard rows that are not stored, and leave the connection idle, or closed if CLOSE_SECONDS are not enough.

        Raises nothing, so that an earlier error stays visible.
        """
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                if self._partitioned is not None:
                    await self._partitioned.abandon()
                await roll_back(self._connection)
        except (psycopg.Error, TimeoutError) as error:
            unfinished = {"action": "replication.not_rolled_back"}
            logger.debug("the transaction of a closed writer was not rolled back: %s", error, extra=unfinished)
        if self._connection.info.transaction_status != TransactionStatus.IDLE:
            await self._connection.close()

    async def _append(self, batch: ChangeBatch, declined: Declined, *, durable: bool) -> ChangeBatch | None:
        """Let one path take the batch; returns the rest of the batch if the path declined it."""
        chosen = choose_path(batch, self._known(declined))
        if chosen is FirstStep.READ_END:
            self._end = await self._direct_path.read_end()
            return batch
        if chosen is FirstStep.END_RUN:
            await self.settle(finish=True)
            declined[WritePath.PARTITIONED] = None
            return batch
        path, reason = chosen
        if path is WritePath.PARTITIONED:
            return await self._take_into_run(batch, declined)
        if self.writes_directly and time.monotonic() >= self._count_at:
            await self._count()
        if path is WritePath.DIRECT:
            assert isinstance(self._end, LogEnd)  # noqa: S101  choose_path
            written = await self._direct_path.write(batch, self._end, wakes_shuffler=self._has_consumers)
            if isinstance(written, PathReason):
                self._end, declined[path] = None, written
                return batch
            self._end = written
        else:
            await self._staged.write(batch, durable=durable)
            self._end = None  # staged rows and placed ranges come before rows that are written directly
        self._stored(batch, path, reason, durable=durable or path is WritePath.DIRECT)
        return None

    async def _take_into_run(self, batch: ChangeBatch, declined: Declined) -> ChangeBatch | None:
        assert self._partitioned is not None  # noqa: S101  choose_path
        was_begun = self._partitioned.state.is_begun
        rest = await self._partitioned.accept(batch)
        if not was_begun and self._partitioned.state.is_begun:
            self._durable = self.position  # the transaction that begins a run commits synchronously
        self._follow(self._partitioned)
        if rest is not batch:
            self._end = None
        if rest is not None:
            declined[WritePath.PARTITIONED] = None
        return rest

    @property
    def _direct_path(self) -> DirectPath:
        assert self._direct is not None  # noqa: S101  choose_path returns DIRECT only if it is on
        return self._direct

    def _known(self, declined: Declined) -> KnownState:
        direct = self._direct
        return KnownState(
            worker=self._claim.worker,
            small=self._settings.small,
            end=self._end,
            begun=self._begun,
            has_failed=direct is not None and direct.has_failed,
            partition_end=math.inf if direct is None else direct.partition.upper,
            next_partition_from=math.inf if direct is None else direct.partition.next_from,
            run=None if self._partitioned is None else self._partitioned.state,
            declined=declined,
        )

    def _stored(self, batch: ChangeBatch, path: WritePath, reason: PathReason | None, *, durable: bool) -> None:
        self._begun = batch.open_lsn if batch.open_lsn in (batch.last_lsn, self._begun) else None
        if self._direct is not None:
            self.changes[path, reason] += len(batch.rows)
            if reason is PathReason.PARTITION:
                self._direct.partition.request_next()
        if batch.position is not None:
            self.position = max(self.position, batch.position)
        if durable:
            self._durable = self.position

    def _follow(self, partitioned: PartitionedPath) -> None:
        """Take over the position up to which the partitioned path has stored rows."""
        if partitioned.stored > self.position:
            self.position = self._durable = partitioned.stored

    def _result(self) -> WriteResult:
        holds = self._partitioned is not None and self._partitioned.holds
        return WriteResult(self.position, self._durable >= self.position, holds)

    async def _count(self) -> None:
        """Store how many changes took which path since the last call; a crash may lose the counts of a second."""
        self._count_at = time.monotonic() + COUNT_EVERY
        new = self.changes - self._counted
        values = {
            "source": self._claim.source,
            "ways": [path for path, _ in new],
            "reasons": [reason or "" for _, reason in new],
            "changes": list(new.values()),
        }
        try:
            found = await log_end.query(self._connection, statement("log.staging", "count_ways"), values)
        except psycopg.Error as error:
            if self._connection.info.transaction_status == TransactionStatus.UNKNOWN:
                raise
            uncounted = {"action": "replication.not_counted"}
            logger.debug("the paths of changes were not counted: %s", error, extra=uncounted)
            self._has_consumers = True  # in doubt the shuffler is woken
            return
        self._counted = self.changes.copy()
        self._has_consumers = found[0][0]


async def stage_within(connection: AsyncConnection[TupleRow], claim: WorkerClaim, batch: ChangeBatch) -> None:
    """Stage one batch with rows, durably, in the transaction that the caller has open on the claim's connection."""
    staged = StagedPath(connection, claim)
    await staged.prepare()
    await staged.write_within(batch)


def reserve_part_seqs(
    connection: Connection, source: uuid.UUID, settings: WritingSettings, spans: Sequence[int]
) -> list[int | None]:
    """Return the first seq of each part of a catch-up; None for each, if parts do not become partitions.

    `spans`: bytes of WAL from the position of worker 0 to the beginning of each part; the numbers of rows are unknown
    until the parts are read. None also for a part whose seqs a jump of the log, which takes the source's clock, might
    give to other events. These seqs are not locked: when a part is stored, its path checks that they are free and next.
    """
    if settings.sizes is None or settings.clock is None:
        return [None for _ in spans]
    values = {
        "source": source,
        "table": settings.table.identifier.as_string(connection),
        "sequence": settings.table.sequence.as_string(connection),
    }
    behind = int(queries.value(connection, statement("log.writing", "reserve_seqs"), values))
    found = [behind + BETWEEN * number + span // BYTES_OF_CHANGE for number, span in enumerate(spans, 1)]
    highest = min(settings.clock(), LAST_SEQ)
    return [first if first + BETWEEN < highest else None for first in found]
