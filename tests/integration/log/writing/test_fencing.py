"""One writer of staging at a time: an older one, alive or frozen, writes nothing after a newer one has claimed it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline.capture.catchup import helper
from pipeline.errors import FencedError, StorageError
from pipeline.log.staging import progress, rows
from pipeline.log.staging.batch import ChangeBatch
from pipeline.log.staging.worker_claim import WorkerClaim, connect_staging
from pipeline.log.writing.log_writer import LogWriter, WritingSettings
from pipeline.server import roles


@pytest.fixture
def source_id(database_dsn: str) -> Iterator[uuid.UUID]:
    """A source with progress, in the pipeline database."""
    made = uuid.uuid4()
    with psycopg.connect(database_dsn, autocommit=True) as log:
        log.execute(
            "insert into pipeline.sources (id, system_identifier, database_name, slot) values (%s, '1', 'd', 's')",
            [made],
        )
        log.execute("insert into pipeline.replication_progress (source_id, epoch, position) values (%s, 0, 1)", [made])
        yield made


def batch(lsn: int) -> ChangeBatch:
    head, change = rows.transaction_head(lsn), rows.change_head(1, 7, 0, b"insert")
    staged = rows.row(head, 0, 0, change, b"1", b"{}")
    return ChangeBatch([staged], lsn, lsn, 0, 1, lsn + 1, lsn, 0, None, 0)


async def opened(connection: AsyncConnection[TupleRow], source: uuid.UUID) -> LogWriter:
    return await LogWriter.open(connection, await WorkerClaim.acquire(connection, source), WritingSettings())


def staged(dsn: str) -> list[Any]:
    with psycopg.connect(dsn) as log:
        return log.execute("select commit_lsn from public.wal_events order by commit_lsn").fetchall()


def test_an_older_writer_can_write_nothing(database_dsn: str, source_id: uuid.UUID):
    async def run() -> None:
        async with await connect_staging(database_dsn) as old, await connect_staging(database_dsn) as new:
            zombie = await opened(old, source_id)
            await zombie.append(batch(10), durable=False)
            newer = await opened(new, source_id)
            await newer.append(batch(20), durable=False)
            with pytest.raises(FencedError):
                await zombie.append(batch(20), durable=False)
            with pytest.raises(FencedError):
                await zombie.advance(99)
            assert newer.position == 21

    asyncio.run(run())
    assert staged(database_dsn) == [(10,), (20,)]


def test_a_part_taken_over_by_another_server_makes_the_worker_start_again(database_dsn: str, source_id: uuid.UUID):
    """The plan was read while it was there still: not what a server ends for, as without any progress at all."""

    async def run() -> None:
        async with await connect_staging(database_dsn) as connection:
            with pytest.raises(FencedError, match=f"part 3 of source {source_id} no longer exists"):
                await WorkerClaim.acquire(connection, source_id, 3)
            with pytest.raises(StorageError, match="no progress is stored") as ended:
                await WorkerClaim.acquire(connection, uuid.uuid4())
            assert not isinstance(ended.value, roles.RETRIED)

    asyncio.run(run())
    assert issubclass(FencedError, roles.RETRIED)
    assert issubclass(FencedError, helper.RETRIED)


@pytest.mark.parametrize("identity", ["full", "default"])
def test_a_half_staged_transaction_is_removed_whatever_is_published(
    database_dsn: str, source_id: uuid.UUID, identity: str
):
    """A publication for all tables, which a user has made in the pipeline database, covers segments too."""

    async def run() -> None:
        async with await connect_staging(database_dsn) as killed, await connect_staging(database_dsn) as new:
            half = batch(20)
            whole = batch(10)
            both = replace(whole, rows=whole.rows + half.rows, last_lsn=20, open_lsn=20, open_changes=1)
            await (await opened(killed, source_id)).append(both, durable=False)
            if identity == "default":
                await killed.execute("alter table pipeline.wal_events_00001 replica identity default")
            await killed.execute("create publication everything for all tables")
            newer = await opened(new, source_id)
            assert newer.position == 11

    asyncio.run(run())
    assert staged(database_dsn) == [(10,)]


def test_a_writer_frozen_inside_of_its_transaction_is_cut_off(database_dsn: str, source_id: uuid.UUID):
    async def run() -> None:
        async with await connect_staging(database_dsn) as new:
            old = await connect_staging(database_dsn)
            zombie = await opened(old, source_id)
            await zombie.append(batch(10), durable=False)
            await old.execute("begin")
            await old.execute("update pipeline.replication_progress set position = 99")
            newer = await opened(new, source_id)
            assert newer.position == 11
            with pytest.raises(psycopg.OperationalError):
                await old.execute("commit")
            await old.close()

    asyncio.run(run())
    assert staged(database_dsn) == [(10,)]


def test_a_new_worker_claims_only_while_another_holds_the_progress_row(database_dsn: str, source_id: uuid.UUID):
    with psycopg.connect(database_dsn) as frozen, psycopg.connect(database_dsn, autocommit=True) as log:
        frozen.execute("update pipeline.replication_progress set position = 99")
        log.execute("set lock_timeout = '1s'")
        progress.begin(log, source_id, 0, 5)
        assert progress.stored_position(log, source_id) == 1
