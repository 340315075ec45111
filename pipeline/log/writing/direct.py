"""Small transactions, at the head: a batch becomes events in one transaction with its progress and the watermark.

It excludes the shuffler by the watermark's row, which each of them locks as planned with, and the writers of earlier
generations by the row of progress. What cannot be written so is staged, and nothing is written here before it is moved.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from pipeline.log.staging import choose_path
from pipeline.log.staging.batch import Batch
from pipeline.log.staging.choose_path import Reason, Way
from pipeline.log.table import EventsTable
from pipeline.log.writing import log_end
from pipeline.log.writing.direct_transaction import HeadTransaction
from pipeline.log.writing.event_maker import EventMaker
from pipeline.log.writing.log_end import LOCK_TIMEOUT, Head, Room
from pipeline.log.writing.staged import Writer
from pipeline.postgres.open_copy import Answer, OpenCopy
from pipeline.postgres.pipelined_copy import roll_back
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)

AFTER_FAILURE = 5.0
"""Seconds for which batches are staged after one could not be written."""
WARN_EVERY = 10.0
"""Seconds between two warnings of the same."""
COUNT_EVERY = 1.0
"""Seconds between two moments at which it is stored how many changes went which way, and consumers are looked for."""
WAIT_FOR, WAIT_STEP, WAIT_EVERY = 0.02, 0.002, 0.25
"""Seconds that a batch waits for the shuffler to move what is staged before it, and how often one does."""
_COMMITTED_AT = slice(58, 66)
"""Where a staged row has it."""
_PROGRESS_AT_HEAD = """\
select commit_lsn from pipeline.replication_progress
where source_id = %(source)s and worker = 0 and generation = %(generation)s
"""
"""How far the writer of this generation has come; no row when a newer one has taken over."""


class _Questions(OpenCopy):
    """What the maker of events wants to know; whatever fails is rolled back by who has called it."""

    async def execute(self, statements: str) -> Answer:
        return await super().execute(f"BEGIN; {LOCK_TIMEOUT}; {statements}\n; COMMIT")


class HeadWriter:
    """Writes batches of one writer of staging, on its connection; `write` returns False for one that is to be staged.

    `table`: the events table of the settings.
    """

    def __init__(self, connection: AsyncConnection[TupleRow], writer: Writer, table: EventsTable) -> None:
        self._connection = connection
        self._writer = writer
        self._table = table
        self._transaction = HeadTransaction(connection, writer, table)
        self._room = Room()
        self._head: Head | None = None
        self._maker = EventMaker(writer.source)
        self._questions = _Questions(connection)
        self._failed_until = self._wait_at = self._warn_at = 0.0
        self._has_consumers = self._is_continued = False
        self._counted: Counter[tuple[Way, Reason | None]] = Counter()
        self._count_at = 0.0
        self.changes: Counter[tuple[Way, Reason | None]] = Counter()
        """How many changes went which way, and why not at once."""

    @classmethod
    def attach(cls, connection: AsyncConnection[TupleRow], table: EventsTable, wanted: str, writer: Writer) -> None:
        """Let the writer of staging, on this connection, try this one first, unless `wanted` is "staged"."""
        if wanted != "staged":
            writer.at_once = cls(connection, writer, table)

    async def write(self, batch: Batch) -> bool:
        """Write the batch, durably. False, with nothing written, when it has to be staged.

        It must be asked about every batch: what is staged, or placed, is to be moved before anything is written here.
        """
        try:
            reason = await self._write(batch)
        except psycopg.Error as error:
            reason = await self._failed(error, batch)
        way = Way.AT_ONCE if reason is None else Way.MOVE
        self.changes[way, reason] += len(batch.rows)
        if reason is not None:
            self._head = None
        return reason is None

    async def _write(self, batch: Batch) -> Reason | None:
        if time.monotonic() >= self._count_at:
            await self.count()
        if reason := choose_path.of_batch(batch):
            return reason
        if time.monotonic() < self._failed_until:
            return Reason.FAILED
        if not await self._continues():
            return Reason.CHANGED
        await self._transaction.prepare()
        found = self._head or await self._look()
        if isinstance(found, Reason):
            return found
        if self._room.lacks(found.seq + len(batch.rows)):
            return Reason.PARTITION
        return await self._write_events(batch, found)

    async def _continues(self) -> bool:
        """True if the log goes on where it was last written. Otherwise the shuffler, which moves the batch, jumps."""
        if not self._is_continued:
            found = await log_end.ask(self._connection, statement("log", "compare_identity"))
            self._is_continued = found[0][0] == []
        return self._is_continued

    async def count(self) -> None:
        """Store how many changes went which way since it was last stored; a crash may lose a second of it."""
        self._count_at = time.monotonic() + COUNT_EVERY
        new = self.changes - self._counted
        values = {
            "source": self._writer.source,
            "ways": [way for way, _ in new],
            "reasons": [reason or "" for _, reason in new],
            "changes": list(new.values()),
        }
        with suppress(psycopg.errors.LockNotAvailable):
            found = await log_end.ask(self._connection, statement("log.staging", "count_ways"), values)
            self._counted = self.changes.copy()
            self._has_consumers = found[0][0]

    async def _look(self) -> Head | Reason:
        """Look at the log's end; a while longer, now and then, when the shuffler has only a little to move."""
        query = self._transaction.look
        found = await log_end.look(self._connection, query, self._table, self._room)
        now = time.monotonic()
        if found is not Reason.STAGED or now < self._wait_at:
            return found
        self._wait_at = now + WAIT_EVERY
        while found is Reason.STAGED and time.monotonic() < now + WAIT_FOR:
            await asyncio.sleep(WAIT_STEP)
            found = await log_end.look(self._connection, query, self._table, self._room)
        return found

    async def _write_events(self, batch: Batch, at: Head) -> Reason | None:
        events = await self._maker.events(batch.rows, at.seq + 1, self._questions)
        if len(events) < len(batch.rows):
            return Reason.VALUES
        last_seq = at.seq + len(events)
        values = {
            "last_lsn": batch.last_lsn,
            "last_seq": last_seq,
            "rows": len(events),
            "newest_at": int.from_bytes(batch.rows[-1][_COMMITTED_AT], "big", signed=True),
            "committed_at": batch.committed_at,
            "epoch": at.epoch,
            "after": at.after,
            "position": batch.position,
            "commit_lsn": batch.commit_lsn,
            "transactions": batch.transactions,
            "routes": at.routes,
            "oid": at.oid,
            "partition": self._room.partition,
        }
        if not await self._transaction.write(values, events, wakes_shuffler=self._has_consumers):
            return Reason.CHANGED
        self._head = Head(at.epoch, batch.last_lsn, at.routes, at.table, at.oid, last_seq)
        logger.debug("written", extra={"action": "replication.written", "events": len(events)})
        return None

    async def _failed(self, error: psycopg.Error, batch: Batch) -> Reason | None:
        """What cannot be written here is written, or found to be poison, by the shuffler; its session is as it was.

        An error does not say that nothing was written: it may have come behind the COMMIT.
        """
        if self._connection.info.transaction_status == TransactionStatus.UNKNOWN:
            raise error
        await roll_back(self._connection)
        self._head = None
        if await self._is_written(batch):
            if time.monotonic() >= self._warn_at:
                self._warn_at = time.monotonic() + WARN_EVERY
                kind = {"action": "replication.unannounced", "sqlstate": error.sqlstate}
                logger.warning("events are written, but their readers could not be woken: %s", error, extra=kind)
            return None
        self._room.forget()
        self._failed_until = time.monotonic() + AFTER_FAILURE
        kind = {"action": "replication.staged_instead", "sqlstate": error.sqlstate}
        logger.debug("a batch could not be written at once", extra=kind)
        return Reason.FAILED

    async def _is_written(self, batch: Batch) -> bool:
        """Whether this writer's progress has the batch."""
        values = {"source": self._writer.source, "generation": self._writer.generation}
        cursor = await self._connection.execute(_PROGRESS_AT_HEAD, values)
        row = await cursor.fetchone()
        return row is not None and row[0] >= batch.last_lsn
