"""Small transactions, at the head: a batch becomes events in one transaction with its progress and the watermark.

It excludes the shuffler by the watermark's row, which each of them locks as planned with, and the writers of earlier
generations by the row of progress. What cannot be written so is staged, and nothing is written here before it is moved.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from pipeline.log import table as log
from pipeline.log.table import EventsTable
from pipeline.postgres.queries import literals, statement
from pipeline.shuffle import event_rows, head, ways
from pipeline.shuffle.event_maker import EventMaker
from pipeline.shuffle.head import LOCK_TIMEOUT, Head, Room
from pipeline.shuffle.ways import Reason, Way
from pipeline.staging import rows, segments
from pipeline.staging.open_copy import Answer, OpenCopy
from pipeline.staging.pipelined_copy import copy_within, roll_back
from pipeline.staging.writer import Batch, Writer

logger = logging.getLogger(__name__)

AFTER_FAILURE = 5.0
"""Seconds for which batches are staged after one could not be written."""
WARN_EVERY = 10.0
"""Seconds between two warnings of the same."""
COUNT_EVERY = 1.0
"""Seconds between two moments at which it is stored how many changes went which way, and consumers are looked for."""
WAIT_FOR, WAIT_STEP, WAIT_EVERY = 0.02, 0.002, 0.25
"""Seconds that a batch waits for the shuffler to move what is staged before it, and how often one does."""
_COLUMNS = ", ".join(event_rows.COLUMNS)
_BEGIN = (
    "last_lsn",
    "last_seq",
    "rows",
    "newest_at",
    "committed_at",
    "epoch",
    "after",
    "position",
    "commit_lsn",
    "transactions",
)
_END = ("last_seq", "rows", "routes", "oid", "partition")
_PREPARED: Mapping[str, Sequence[str]] = {"begin_at_head": _BEGIN, "end_at_head": _END, "look_at_head": ()}
"""Statements and their parameters."""
_COMMITTED_AT = slice(58, 66)
"""Where a staged row has it."""


class HeadWriter:
    """Writes batches of one writer of staging, on its connection; `write` returns False for one that is to be staged.

    `table`: the events table of the settings.
    """

    def __init__(self, connection: AsyncConnection[TupleRow], writer: Writer, table: EventsTable) -> None:
        self._connection = connection
        self._writer = writer
        self._table = table
        self._room = Room()
        self._head: Head | None = None
        self._maker = EventMaker(writer.source)
        self._failed_until = self._wait_at = self._warn_at = 0.0
        self._prepared: set[str] = set()
        self._texts = self._write_texts()
        self._has_consumers = False
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
        if reason := ways.of_batch(batch):
            return reason
        if time.monotonic() < self._failed_until:
            return Reason.FAILED
        await self._prepare()
        found = self._head or await self._look()
        if isinstance(found, Reason):
            return found
        if self._room.lacks(found.seq + len(batch.rows)):
            return Reason.PARTITION
        return await self._copy(batch, found)

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
            found = await head.ask(self._connection, statement("shuffle", "count_ways"), values)
            self._counted = self.changes.copy()
            self._has_consumers = found[0][0]

    async def _look(self) -> Head | Reason:
        """Look at the log's end; a while longer, now and then, when the shuffler has only a little to move."""
        query = f"execute look_at_head_{self._writer.generation}"
        found = await head.look(self._connection, query, self._table, self._room)
        now = time.monotonic()
        if found is not Reason.STAGED or now < self._wait_at:
            return found
        self._wait_at = now + WAIT_EVERY
        while found is Reason.STAGED and time.monotonic() < now + WAIT_FOR:
            await asyncio.sleep(WAIT_STEP)
            found = await head.look(self._connection, query, self._table, self._room)
        return found

    async def _copy(self, batch: Batch, at: Head) -> Reason | None:
        events = await self._maker.events(batch.rows, at.seq + 1, self._ask)
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
        data = b"".join((rows.HEADER, *events, rows.TRAILER))
        if await copy_within(self._connection, self._statements(values, last_seq), data) is None:
            await roll_back(self._connection)
            return Reason.CHANGED
        self._head = Head(at.epoch, batch.last_lsn, at.routes, at.table, at.oid, last_seq)
        logger.debug("written", extra={"action": "replication.written", "events": len(events)})
        return None

    def _statements(self, values: Mapping[str, Any], last_seq: int) -> str:
        """The transaction, and behind its COMMIT the NOTIFY: one inside of it would make all others with one wait."""
        begin, end = (", ".join([str(values[name]) for name in names]) for names in (_BEGIN, _END))
        wake = f"; notify {segments.STAGED_CHANNEL}" if self._has_consumers else ""  # the shuffler makes items
        opens, copies, commits, rest = self._texts
        return f"{opens}{begin}{copies}{end}{commits}{last_seq}{rest}{wake}"

    def _write_texts(self) -> tuple[str, str, str, str]:
        """What is the same in each transaction: before and behind the parameters of both statements, and the seq."""
        name, text = log.notification(self._table, 0)
        channel, payload = sql.Identifier(name).as_string(), sql.Literal(text).as_string()
        before_seq, _, rest = payload.rpartition("0")
        of = self._writer.generation
        return (
            f"BEGIN; {LOCK_TIMEOUT}; set local synchronous_commit = on; execute begin_at_head_{of}(",
            f"); copy {self._table.identifier.as_string(self._connection)} ({_COLUMNS}) from stdin (format binary); "
            f"execute end_at_head_{of}(",
            f"); COMMIT; notify {channel}, {before_seq}",
            rest,
        )

    async def _prepare(self) -> None:
        """Prepare what is not yet; a PREPARE that has to wait for a lock is tried again with the next batch."""
        if len(self._prepared) == len(_PREPARED):
            return
        who = {
            "source": self._writer.source,
            "generation": self._writer.generation,
            "sequence": self._table.sequence.as_string(self._connection),
            "name": str(self._table),
        }
        for name in _PREPARED.keys() - self._prepared:
            given = _PREPARED[name]
            numbers = {each: f"${number}::bigint" for number, each in enumerate(given, 1)}
            text = statement("shuffle", name) % {**literals(**who), **numbers}
            types = f" ({', '.join(['bigint'] * len(given))})" if given else ""
            await head.ask(self._connection, f"prepare {name}_{self._writer.generation}{types} as {text}")
            self._prepared.add(name)

    async def _ask(self, query: str) -> Answer:
        """What the maker wants to know; whatever fails is rolled back by `_failed`."""
        return await OpenCopy(self._connection).execute(f"BEGIN; {LOCK_TIMEOUT}; {query}\n; COMMIT")

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
        cursor = await self._connection.execute(statement("shuffle", "progress_at_head"), values)
        row = await cursor.fetchone()
        return row is not None and row[0] >= batch.last_lsn
