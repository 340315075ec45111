"""Writing to staging: one fenced writer for each worker, batches by COPY, progress in the same transaction."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Protocol

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from pipeline.errors import Fenced, StorageError, Unavailable
from pipeline.log.staging import half_staged, rows, segments
from pipeline.log.staging.batch import Batch
from pipeline.log.staging.progress import with_progress
from pipeline.log.writing.log_writer import Backlog
from pipeline.postgres import connections, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.pipelined_copy import HEADER, TRAILER, copy_within
from pipeline.postgres.queries import literals, statement

CLAIM_TIMEOUT = "set local lock_timeout = '5s'"
"""So that a new writer does not wait for ever for the locks of an older one."""
_COLUMNS = ", ".join(rows.COLUMNS)
_BATCH_VALUES = (
    "segment",
    "full_at",
    "rows",
    "position",
    "commit_lsn",
    "committed_at",
    "open_lsn",
    "open_changes",
    "transactions",
    "first_lsn",
    "last_lsn",
    "first_ordinal",
)
"""The parameters of `store_batch` that change with each batch, in this order."""
_LOCK_CLAIM = """\
select pg_advisory_xact_lock(hashtextextended('pipeline claim ' || %(source)s::text || ' ' || %(worker)s::text, 0))
"""
"""Until the end of its transaction, this lock shows which session is claiming."""
_STORED_POSITION = """\
select position from pipeline.replication_progress where source_id = %(source)s and worker = %(worker)s
"""
"""How far a worker has staged; no row when it never began."""


async def connect_writer(dsn: str) -> AsyncConnection[TupleRow]:
    """The connection of a worker to staging. Raises Unavailable."""
    try:
        return await connections.connect_async(dsn, name="pipeline staging", settings=session_settings.SERVER)
    except psycopg.OperationalError as error:
        raise connections.unavailable(dsn, "pipeline database", error) from error


class AtOnce(Protocol):
    """What writes batches at once. It is asked about every batch, also those without rows."""

    async def write(self, batch: Batch) -> bool:
        """Whether it has written the batch, durably; else it is staged."""

    async def count(self) -> None:
        """Store what is counted of the batches so far."""


def stored_position(connection: Connection, source: uuid.UUID, worker: int = 0) -> int | None:
    """The stored position of a worker; None when this source was never replicated."""
    row = connection.execute(_STORED_POSITION, {"source": source, "worker": worker}).fetchone()
    return None if row is None else row[0]


def begin(connection: Connection, source: uuid.UUID, epoch: int, position: int, worker: int = 0) -> None:
    """Store the first position of a source; an existing one is kept."""
    connection.execute(
        statement("log.writing", "begin_progress"),
        {"source": source, "worker": worker, "epoch": epoch, "position": position},
    )


class Writer:
    """The only writer of a worker's staging rows. `position`: everything before it is staged; continue from there."""

    def __init__(
        self,
        connection: AsyncConnection[TupleRow],
        source: uuid.UUID,
        worker: int,
        claim: tuple[int, int, int],
    ) -> None:
        self._connection = connection
        self.source, self.worker = source, worker
        self._who = {"source": source, "worker": worker, "generation": claim[0]}
        self._store_batch = f"store_batch_{worker}_{claim[0]}"
        self._segment: int | None = None
        self._next_ordinal = 0
        self.generation = claim[0]
        self.position = claim[1]
        self.commit_lsn = claim[2]
        self.at_once: AtOnce | None = None
        """Tried first, outside of a transaction."""
        self.backlog: Backlog | None = None
        """Takes batches before that."""

    @property
    def takes_any(self) -> bool:
        """Whether it makes no difference where in a transaction a batch ends."""
        return self.at_once is None and self.backlog is None

    @classmethod
    async def claim(cls, connection: AsyncConnection[TupleRow], source: uuid.UUID, worker: int = 0) -> Writer:
        """Take over: fence older writers, and remove the rows that they left of an incomplete transaction.

        Raises Unavailable when the session of an older writer keeps the progress row locked, and Fenced when this part
        of a backlog no longer exists.
        """
        who = {"source": source, "worker": worker}
        # A crash may lose a batch together with its progress; the slot is not confirmed for it, and sends it again.
        await connection.execute("set synchronous_commit = off")
        # An older writer that is frozen inside of a transaction would keep its locks for ever. One outside of a
        # transaction is left alone: it is fenced by its old generation when it wakes up.
        await connection.execute(statement("log.writing", "end_older_writer"), who)
        try:
            async with connection.transaction():
                await connection.execute(CLAIM_TIMEOUT)
                await connection.execute(_LOCK_CLAIM, who)
                cursor = await connection.execute(statement("log.writing", "claim_progress"), who)
                row = await cursor.fetchone()
                if row is None and worker:
                    raise Fenced(f"part {worker} of source {source} no longer exists: another worker has taken it over")
                if row is None:
                    raise StorageError(f"no progress is stored for source {source}")
                await half_staged.drop(connection, who, row[2])
        except psycopg.errors.LockNotAvailable as error:
            raise Unavailable(
                f"another session holds staging of source {source}: {error}; it is tried again, or end that session"
            ) from error
        writer = cls(connection, source, worker, (row[0], row[1], row[2]))
        await writer._prepare()
        return writer

    async def append(self, batch: Batch, *, durable: bool) -> None:
        """Stage a batch in one transaction. With `durable`, it and everything before it are on disk when this returns.

        If the caller has a transaction open it becomes part of that. A batch without rows ends transactions that were
        staged in part. Raises Fenced, having written nothing, when a newer writer has taken over.
        """
        rest = batch if self.backlog is None else await self.backlog.takes(batch)
        if rest is None:
            return
        batch = rest
        inside = self._connection.info.transaction_status != TransactionStatus.IDLE
        if self.at_once is not None and not inside and await self.at_once.write(batch):
            pass
        elif batch.rows:
            await self._append(batch, durable=durable)
        else:
            await self._end(batch, durable=durable)
        if batch.position is not None:
            self.position = max(self.position, batch.position)

    async def _append(self, batch: Batch, *, durable: bool) -> None:
        inside = self._connection.info.transaction_status != TransactionStatus.IDLE
        begin, commit = ("", "") if inside else ("BEGIN; ", "; COMMIT")
        try:
            if (segment := self._segment) is None:
                if not inside:
                    await self._connection.execute("BEGIN")
                begin, segment = "", await self._take_segment()
            # Progress is updated before the rows: after that no newer writer can take over before this COMMIT.
            durably = "set local synchronous_commit = on; " if durable else ""
            copy = f"copy {segments.table(segment).as_string()} ({_COLUMNS}) from stdin (format binary)"
            statements = f"{begin}{durably}{self._store(batch, segment)}; {copy}{commit}"
            # Ordinals have no gaps in a segment, though batches between may have been written at once.
            follows = self._segment is None or batch.first_ordinal == self._next_ordinal
            staged = batch.rows if follows else rows.renumbered(batch.rows, self._next_ordinal)
            state = await copy_within(self._connection, statements, b"".join((HEADER, *staged, TRAILER)))
            if state is None:
                raise self.fenced()
        except (psycopg.Error, Fenced):
            if not inside:
                with suppress(psycopg.Error):  # the connection itself may be broken
                    await self._connection.rollback()
            raise
        first = batch.first_ordinal if follows else self._next_ordinal
        self._next_ordinal = first + len(batch.rows)
        self._segment = segment if state == b"filling" else None

    async def _end(self, batch: Batch, *, durable: bool) -> None:
        async with self._connection.transaction():
            if durable:
                await self._connection.execute("set local synchronous_commit = on")
            cursor = await self._connection.execute(
                with_progress("log.writing", "end_transactions"),
                {
                    **self._who,
                    "position": batch.position,
                    "commit_lsn": batch.commit_lsn,
                    "committed_at": batch.committed_at,
                    "open_lsn": batch.open_lsn,
                    "open_changes": batch.open_changes,
                    "rows": 0,
                    "transactions": batch.transactions,
                },
            )
            if await cursor.fetchone() is None:
                raise self.fenced()

    async def store_position(self, position: int) -> None:
        """Store, durably, that all changes before `position` are staged; earlier batches become durable too."""
        async with self._connection.transaction():
            await self._connection.execute("set local synchronous_commit = on")
            cursor = await self._connection.execute(
                statement("log.writing", "store_position"), {**self._who, "position": position}
            )
            row = await cursor.fetchone()
            if row is None:
                raise self.fenced()
        self.position = row[0]
        if self.at_once is not None:
            await self.at_once.count()

    async def _prepare(self) -> None:
        """Prepare `store_batch` in this session, so that it is parsed and planned once."""
        numbers = {name: f"${number}" for number, name in enumerate(_BATCH_VALUES, 1)}
        text = with_progress("log.writing", "store_batch") % {**literals(**self._who), **numbers}
        await self._connection.execute(f"prepare {self._store_batch} as {text}".encode())

    def _store(self, batch: Batch, segment: int) -> str:
        values = (
            segment,
            segments.FULL_AT,
            len(batch.rows),
            batch.position,
            batch.commit_lsn,
            batch.committed_at,
            batch.open_lsn,
            batch.open_changes,
            batch.transactions,
            batch.first_lsn,
            batch.last_lsn,
            batch.first_ordinal,
        )
        literals = ["null" if value is None else str(value) for value in values]
        return f"execute {self._store_batch}({', '.join(literals)})"

    async def _take_segment(self) -> int:
        cursor = await self._connection.execute(statement("log.staging", "take_segment"), self._who)
        row = await cursor.fetchone()
        if row is not None:
            return int(row[0])
        cursor = await self._connection.execute(statement("log.staging", "add_segment"), self._who)
        row = await cursor.fetchone()
        assert row is not None  # noqa: S101  insert … returning
        await self._connection.execute(segments.create(row[0]))
        return int(row[0])

    def fenced(self) -> Fenced:
        """What to raise once a newer worker has taken over."""
        return Fenced(
            f"another replication worker has taken over source {self._who['source']}; "
            f"this one (generation {self._who['generation']}) stops"
        )
