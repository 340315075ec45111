"""The claim of a worker, from which on only this process writes the changes that the worker reads."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow

from pipeline.errors import DatabaseUnavailableError, FencedError, StorageError
from pipeline.log.staging import segments
from pipeline.postgres import connections, session_settings
from pipeline.postgres.queries import statement

CLAIM_TIMEOUT = "set local lock_timeout = '5s'"
"""How long a new worker waits for the locks of an older one."""
_LOCK_CLAIM = """\
select pg_advisory_xact_lock(hashtextextended('pipeline claim ' || %(source)s::text || ' ' || %(worker)s::text, 0))
"""
"""Until the end of its transaction, this lock shows which session is claiming."""
_IDENTITY = sql.SQL("alter table {} replica identity full")
"""A segment has no key: if a publication for all tables contains it, no row could be deleted without this."""
_CUT_SEGMENT = """\
update pipeline.segments set last_lsn = %(commit_lsn)s, row_count = row_count - %(removed)s where id = %(id)s
"""
"""Shorten a segment by the incomplete transaction at its end."""
_IDENTITY_IS_FULL = "select relreplident = 'f' as is_full from pg_class where oid = to_regclass(%(table)s::text)"
"""Check that rows of a segment can be deleted whichever publication contains the segment."""
_UNCOUNT_CHANGES = """\
update pipeline.replication_progress set changes = changes - %(void)s
where source_id = %(source)s and worker = %(worker)s
"""
"""Subtract removed rows from the count: they will be staged, and counted, again."""


@dataclass(frozen=True)
class WorkerClaim:
    """A worker's right to write, until another process takes the claim of the same worker.

    Every transaction of the worker compares `generation` with the stored one. `position` and `commit_lsn` are LSNs of
    the source, as stored when the claim was taken: everything before `position` was staged, and the last transaction
    with rows committed at `commit_lsn`.
    """

    source: uuid.UUID
    worker: int
    generation: int
    position: int
    commit_lsn: int

    @property
    def who(self) -> dict[str, object]:
        """The parameters by which statements find the worker's row of progress, and its generation."""
        return {"source": self.source, "worker": self.worker, "generation": self.generation}

    @classmethod
    async def acquire(cls, connection: AsyncConnection[TupleRow], source: uuid.UUID, worker: int = 0) -> WorkerClaim:
        """Take over from older processes, and remove the rows that they left of an incomplete transaction.

        The connection is that of everything that is written under the claim: a newer worker ends its session when it
        hangs. Raises DatabaseUnavailableError when the session of an older worker keeps the progress row locked, and
        FencedError when this part of a backlog no longer exists.
        """
        who = {"source": source, "worker": worker}
        # A crash may lose a batch together with its progress; the slot is not confirmed for it, and sends it again.
        await connection.execute("set synchronous_commit = off")
        # An older worker that is frozen inside of a transaction would keep its locks forever. A worker outside of a
        # transaction may stay: its old generation fences it when it wakes up.
        await connection.execute(statement("log.staging", "end_older_writer"), who)
        try:
            async with connection.transaction():
                await connection.execute(CLAIM_TIMEOUT)
                await connection.execute(_LOCK_CLAIM, who)
                cursor = await connection.execute(statement("log.staging", "claim_progress"), who)
                row = await cursor.fetchone()
                if row is None and worker:
                    raise FencedError(
                        f"part {worker} of source {source} no longer exists: another worker has taken it over"
                    )
                if row is None:
                    raise StorageError(f"no progress is stored for source {source}")
                await _drop_half_staged(connection, who, row[2])
        except psycopg.errors.LockNotAvailable as error:
            raise DatabaseUnavailableError(
                f"another session holds staging of source {source}: {error}; end that session, or wait for another try"
            ) from error
        return cls(source, worker, row[0], row[1], row[2])

    def fenced(self) -> FencedError:
        """Return the error to raise once a newer worker has taken over."""
        return FencedError(
            f"another replication worker has taken over source {self.source}; "
            f"this one (generation {self.generation}) stops"
        )


async def connect_staging(dsn: str) -> AsyncConnection[TupleRow]:
    """Open the connection of a worker to staging. Raises DatabaseUnavailableError.

    psycopg prepares nothing on it by itself: after a rollback it would deallocate all that the session has prepared.
    """
    settings = session_settings.SERVER
    try:
        return await connections.connect_async(dsn, name="pipeline staging", settings=settings, prepare_threshold=None)
    except psycopg.OperationalError as error:
        raise connections.unavailable(dsn, "pipeline database", error) from error


async def _drop_half_staged(connection: AsyncConnection[TupleRow], who: dict[str, object], commit_lsn: int) -> None:
    """Remove the worker's rows beyond its last whole transaction, in the transaction that claims its progress."""
    cursor = await connection.execute(statement("log.staging", "drop_half_staged"), {**who, "commit_lsn": commit_lsn})
    void = 0
    for segment, state, mixed, rows_in_it in await cursor.fetchall():
        if state == "drained":
            void += rows_in_it
        elif mixed:
            await _allow_deletes(connection, segments.table(segment))
            removed = await connection.execute(
                sql.SQL("delete from only {} where commit_lsn > %s").format(segments.table(segment)), (commit_lsn,)
            )
            cut = {"id": segment, "commit_lsn": commit_lsn, "removed": removed.rowcount}
            await connection.execute(_CUT_SEGMENT, cut)
            void += removed.rowcount
    await connection.execute(_UNCOUNT_CHANGES, {**who, "void": void})


async def _allow_deletes(connection: AsyncConnection[TupleRow], table: sql.Identifier) -> None:
    """Give a segment that an older version has made an identity; a lock is taken only for those."""
    cursor = await connection.execute(_IDENTITY_IS_FULL, {"table": table.as_string()})
    if await cursor.fetchone() != (True,):
        await connection.execute(_IDENTITY.format(table))
