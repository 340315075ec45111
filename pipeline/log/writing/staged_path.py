"""The staged path: a batch is copied into a segment of `wal_events`, with its progress in the same transaction.

The shuffler, `pipeline/log/shuffling/shuffler.py`, moves these rows into the events tables.
"""

from __future__ import annotations

from contextlib import suppress

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline.errors import FencedError
from pipeline.log.staging import rows, segments
from pipeline.log.staging.batch import ChangeBatch
from pipeline.log.staging.progress import with_progress
from pipeline.log.staging.worker_claim import WorkerClaim
from pipeline.postgres.pipelined_copy import copy_within
from pipeline.postgres.prepared_calls import PreparedStatements
from pipeline.postgres.queries import literals, statement

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
"""The parameters of `store_batch` that differ for each batch, in this order."""


class StagedPath:
    """Writes batches of one worker to staging; it takes any batch.

    Call `prepare` first. Every call raises FencedError, without writing anything, if a newer worker has taken over.
    """

    def __init__(self, connection: AsyncConnection[TupleRow], claim: WorkerClaim) -> None:
        self._connection = connection
        self._claim = claim
        self._statements = PreparedStatements(connection, f"{claim.worker}_{claim.generation}")
        self._store_batch = self._statements.name("store_batch")
        self._segment: int | None = None
        self._next_ordinal = 0

    async def prepare(self) -> None:
        """Prepare `store_batch` in this session, so that it is parsed and planned once."""
        numbers = {name: f"${number}" for number, name in enumerate(_BATCH_VALUES, 1)}
        text = with_progress("log.writing", "store_batch") % {**literals(**self._claim.who), **numbers}
        await self._statements.prepare({"store_batch": text})

    async def write(self, batch: ChangeBatch, *, durable: bool) -> None:
        """Stage a batch in one transaction. With `durable`, this and all earlier batches are on disk on return.

        A batch without rows completes transactions that were staged in part.
        """
        if not batch.rows:
            async with self._connection.transaction():
                await self._end_transactions(batch, durable=durable)
            return
        try:
            if self._segment is None:
                await self._connection.execute("BEGIN")
                await self._copy(batch, "", durable=durable)
            else:
                await self._copy(batch, "BEGIN; ", durable=durable)
        except (psycopg.Error, FencedError):
            with suppress(psycopg.Error):  # the connection itself may be broken
                await self._connection.rollback()
            raise

    async def write_within(self, batch: ChangeBatch) -> None:
        """Stage a batch with rows, durably, in the transaction that the caller has open."""
        await self._copy(batch, "", durable=True, commit="")

    async def store_position(self, position: int) -> int:
        """Store, durably, that all changes before `position` are staged; earlier batches become durable too.

        Returns the stored position.
        """
        async with self._connection.transaction():
            await self._connection.execute("set local synchronous_commit = on")
            cursor = await self._connection.execute(
                statement("log.writing", "store_position"), {**self._claim.who, "position": position}
            )
            row = await cursor.fetchone()
            if row is None:
                raise self._claim.fenced()
        return int(row[0])

    async def _copy(self, batch: ChangeBatch, begin: str, *, durable: bool, commit: str = "; COMMIT") -> None:
        """Send `begin`, the progress, the rows and `commit` in one message."""
        segment = self._segment if self._segment is not None else await self._take_segment()
        # Progress is updated before the rows: after that no newer worker can take over before this COMMIT.
        durably = "set local synchronous_commit = on; " if durable else ""
        copy = f"copy {segments.table(segment).as_string()} ({_COLUMNS}) from stdin (format binary)"
        statements = f"{begin}{durably}{self._store(batch, segment)}; {copy}{commit}"
        # Ordinals have no gaps in a segment, although batches in between may have taken another path.
        follows = self._segment is None or batch.first_ordinal == self._next_ordinal
        staged = batch.rows if follows else rows.renumbered(batch.rows, self._next_ordinal)
        state = await copy_within(self._connection, statements, staged)
        if state is None:
            raise self._claim.fenced()
        first = batch.first_ordinal if follows else self._next_ordinal
        self._next_ordinal = first + len(batch.rows)
        self._segment = segment if state == b"filling" else None

    async def _end_transactions(self, batch: ChangeBatch, *, durable: bool) -> None:
        if durable:
            await self._connection.execute("set local synchronous_commit = on")
        cursor = await self._connection.execute(
            with_progress("log.writing", "end_transactions"),
            {
                **self._claim.who,
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
            raise self._claim.fenced()

    def _store(self, batch: ChangeBatch, segment: int) -> str:
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
        cursor = await self._connection.execute(statement("log.staging", "take_segment"), self._claim.who)
        row = await cursor.fetchone()
        if row is not None:
            return int(row[0])
        cursor = await self._connection.execute(statement("log.staging", "add_segment"), self._claim.who)
        row = await cursor.fetchone()
        assert row is not None  # noqa: S101  insert … returning
        await self._connection.execute(segments.create(row[0]))
        return int(row[0])
