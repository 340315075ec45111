"""The pool of requests: what it lends works, and what is read takes no round trips besides the statements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from pipeline.postgres.pool import Pool
from tests.fixtures import round_trips

Use = Callable[[Pool], Awaitable[Any]]


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[Pool]:
    pool = Pool(dsn, "test")
    await pool.open()
    await round_trips.only_connection(pool)
    try:
        yield pool
    finally:
        await pool.close()


def used(dsn: str, use: Use) -> Any:
    async def run() -> Any:
        async with opened(dsn) as pool:
            return await use(pool)

    return asyncio.run(run())


async def session(pool: Pool) -> int:
    return int((await pool.rows("select pg_backend_pid() as pid"))[0]["pid"])


def test_a_connection_that_has_ended_is_not_lent(database_dsn: str) -> None:
    async def use(pool: Pool) -> None:
        for _ in range(3):
            ended = await session(pool)
            with psycopg.connect(database_dsn, autocommit=True) as other:
                other.execute("select pg_terminate_backend(%s, 60000)", [ended])
            assert await session(pool) != ended
            async with pool.transaction() as connection:
                await connection.execute("select 1")

    used(database_dsn, use)


def test_what_the_server_says_to_a_session_at_rest_ends_nothing(database_dsn: str) -> None:
    async def use(pool: Pool) -> None:
        known = await session(pool)
        async with pool.connection() as connection:
            await connection.execute("listen something")
        with psycopg.connect(database_dsn, autocommit=True) as other:
            other.execute("notify something")
        assert await session(pool) == known

    used(database_dsn, use)


def test_a_transaction_ends_with_its_block(database_dsn: str) -> None:
    async def count(pool: Pool) -> int:
        return int((await pool.rows("select count(*) as number from t"))[0]["number"])

    async def use(pool: Pool) -> None:
        async with pool.connection() as connection:
            await connection.execute("create table t as select 1 as a")
        with pytest.raises(ZeroDivisionError):
            async with pool.transaction() as connection:
                await connection.execute("insert into t values (2)")
                raise ZeroDivisionError
        assert await count(pool) == 1
        async with pool.transaction(durable=False) as connection:
            await connection.execute("insert into t values (2)")
            assert connection.info.transaction_status == TransactionStatus.INTRANS
        assert await count(pool) == 2
        assert await pool.rows("show synchronous_commit") == [{"synchronous_commit": "on"}]

    used(database_dsn, use)


def test_reading_takes_one_round_trip_a_statement(database_dsn: str, tmp_path: Path) -> None:
    async def use(pool: Pool) -> None:
        with round_trips.counted(await round_trips.only_connection(pool), tmp_path) as count:
            for _ in range(3):
                await session(pool)
            async with pool.connection() as connection:
                for _ in range(2):
                    await connection.execute("select %s", [1])
            assert count() == 5

    used(database_dsn, use)
