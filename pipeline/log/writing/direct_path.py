"""The direct path: a small batch becomes events in one transaction with its progress and the watermark.

It excludes the shuffler by the watermark's row, which each of them locks as planned with, and older workers by the row
of progress.
"""

from __future__ import annotations

import asyncio
import logging
import time

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from pipeline.log.staging.batch import ChangeBatch
from pipeline.log.staging.choose_path import LogEnd, PathReason
from pipeline.log.staging.worker_claim import WorkerClaim
from pipeline.log.table import EventsTable
from pipeline.log.writing import log_end
from pipeline.log.writing.direct_transaction import DirectTransaction
from pipeline.log.writing.event_maker import EventMaker
from pipeline.log.writing.log_end import LOCK_TIMEOUT, TargetPartition
from pipeline.postgres.pipelined_copy import Answer, OpenCopy, roll_back
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)

AFTER_FAILURE = 5.0
"""Seconds for which batches are staged after one could not be written."""
WARN_EVERY = 10.0
"""Seconds between two warnings of the same kind."""
WAIT_FOR, WAIT_STEP, WAIT_EVERY = 0.02, 0.002, 0.25
"""Seconds that a batch waits for the shuffler to move staged rows, between two checks, and between two waits."""
_COMMITTED_AT = slice(58, 66)
"""The bytes of a staged row that hold its committed_at."""
_STORED_COMMIT = """\
select commit_lsn from pipeline.replication_progress
where source_id = %(source)s and worker = 0 and generation = %(generation)s
"""
"""Read how far the worker of this generation is; no row if a newer worker has taken over."""


class _Questions(OpenCopy):
    """The session on which the event maker runs its queries; the caller rolls back any that fails."""

    async def execute(self, statements: str) -> Answer:
        return await super().execute(f"BEGIN; {LOCK_TIMEOUT}; {statements}\n; COMMIT")


class DirectPath:
    """Writes small batches of worker 0 to the events table of the settings, at the log's end."""

    def __init__(
        self, connection: AsyncConnection[TupleRow], claim: WorkerClaim, table: EventsTable, maker: EventMaker
    ) -> None:
        self._connection, self._claim, self._table = connection, claim, table
        self._transaction = DirectTransaction(connection, claim, table)
        self._maker = maker
        self._questions = _Questions(connection)
        self._failed_until = self._wait_at = self._warn_at = 0.0
        self._is_continued = False
        self.partition = TargetPartition()
        """The partition to which the path writes."""

    @property
    def has_failed(self) -> bool:
        """True while the path is not tried, since a batch could not be written a moment ago."""
        return time.monotonic() < self._failed_until

    async def read_end(self) -> LogEnd | PathReason:
        """Read the log's end, or the reason why nothing can be written there.

        Four times a second at most, it waits up to 20 ms for the shuffler to move the rows that are staged.
        """
        try:
            return await self._read_end()
        except psycopg.Error as error:
            return await self._failed(error, None) or PathReason.FAILED

    async def write(self, batch: ChangeBatch, end: LogEnd, *, wakes_shuffler: bool) -> LogEnd | PathReason:
        """Write the batch at the log's end, durably. Returns the new end, or the reason why the path declines it."""
        try:
            return await self._write(batch, end, wakes_shuffler=wakes_shuffler)
        except psycopg.Error as error:
            return await self._failed(error, batch) or self._end_after(batch, end)

    async def _read_end(self) -> LogEnd | PathReason:
        if not await self._continues():
            return PathReason.CHANGED
        await self._transaction.prepare()
        statement_text = self._transaction.read_end
        found = await log_end.read(self._connection, statement_text, self._table, self.partition)
        now = time.monotonic()
        if found is not PathReason.STAGED or now < self._wait_at:
            return found
        self._wait_at = now + WAIT_EVERY
        while found is PathReason.STAGED and time.monotonic() < now + WAIT_FOR:
            await asyncio.sleep(WAIT_STEP)
            found = await log_end.read(self._connection, statement_text, self._table, self.partition)
        return found

    async def _continues(self) -> bool:
        """Return True if the log continues where it was last written. Otherwise the shuffler must first let it jump."""
        if not self._is_continued:
            rows = await log_end.query(self._connection, statement("log", "compare_identity"))
            self._is_continued = rows[0][0] == []
        return self._is_continued

    async def _write(self, batch: ChangeBatch, end: LogEnd, *, wakes_shuffler: bool) -> LogEnd | PathReason:
        await self._transaction.prepare()
        events = await self._maker.events(batch.rows, end.seq + 1, self._questions)
        if len(events) < len(batch.rows):
            return PathReason.VALUES
        after = self._end_after(batch, end)
        values = {
            "last_lsn": batch.last_lsn,
            "last_seq": after.seq,
            "rows": len(events),
            "newest_at": int.from_bytes(batch.rows[-1][_COMMITTED_AT], "big", signed=True),
            "committed_at": batch.committed_at,
            "epoch": end.epoch,
            "after": end.after,
            "position": batch.position,
            "commit_lsn": batch.commit_lsn,
            "transactions": batch.transactions,
            "routes": end.routes,
            "oid": end.oid,
            "partition": self.partition.oid,
        }
        if not await self._transaction.write(values, events, wakes_shuffler=wakes_shuffler):
            return PathReason.CHANGED
        logger.debug("a batch was written directly", extra={"action": "replication.written", "events": len(events)})
        return after

    @staticmethod
    def _end_after(batch: ChangeBatch, end: LogEnd) -> LogEnd:
        return LogEnd(end.epoch, batch.last_lsn, end.routes, end.oid, end.seq + len(batch.rows))

    async def _failed(self, error: psycopg.Error, batch: ChangeBatch | None) -> PathReason | None:
        """Roll back. Returns None if the batch is written nevertheless: an error may follow the COMMIT.

        The shuffler writes the changes that cannot be written here, or finds that they are poison.
        """
        if self._connection.info.transaction_status == TransactionStatus.UNKNOWN:
            raise error
        await roll_back(self._connection)
        if batch is not None and await self._is_written(batch):
            if time.monotonic() >= self._warn_at:
                self._warn_at = time.monotonic() + WARN_EVERY
                fields = {"action": "replication.unannounced", "sqlstate": error.sqlstate}
                logger.warning("events are written, but their readers could not be woken: %s", error, extra=fields)
            return None
        self.partition.forget()
        self._failed_until = time.monotonic() + AFTER_FAILURE
        fields = {"action": "replication.staged_instead", "sqlstate": error.sqlstate}
        logger.debug("a batch could not be written directly", extra=fields)
        return PathReason.FAILED

    async def _is_written(self, batch: ChangeBatch) -> bool:
        """Return True if this worker's progress includes the batch."""
        values = {"source": self._claim.source, "generation": self._claim.generation}
        row = await (await self._connection.execute(_STORED_COMMIT, values)).fetchone()
        return row is not None and row[0] >= batch.last_lsn
