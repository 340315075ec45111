"""Transactions of prepared statements that are sent together."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg
import pytest

from pipeline.postgres import prepared_calls
from pipeline.postgres.prepared_calls import CallStep, PrepareStep, Step

ADD, FAIL = (
    PrepareStep(b"add", b"insert into t values ($1::int, $2::bytea)"),
    PrepareStep(b"fail", b"select 1 / $1::int"),
)
ONE, LARGE = (1).to_bytes(4, "big"), b"x" * 3_000_000
"""More than the buffers of a socket hold."""


def rows_of(dsn: str, *transactions: list[Step]) -> list[tuple[int, int]]:
    """Run these; what they have left in a table."""

    async def run() -> list[tuple[int, int]]:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute("create table t (n int, value bytea)")
            with suppress(psycopg.errors.DivisionByZero):
                await prepared_calls.run_transactions(connection, *transactions)
            cursor = await connection.execute("select n, length(value) from t order by n")
            return [(row[0], row[1]) for row in await cursor.fetchall()]

    return asyncio.run(run())


def add(number: int, value: bytes | None = b"") -> CallStep:
    return CallStep(ADD.name, [number.to_bytes(4, "big"), value])


def test_each_is_a_transaction(database_dsn: str) -> None:
    assert rows_of(database_dsn, [ADD, add(1), add(2, None)], [add(3)]) == [(1, 0), (2, None), (3, 0)]


def test_one_that_fails_leaves_nothing_and_the_others_are_run(database_dsn: str) -> None:
    fails = CallStep(FAIL.name, [b"\0" * 4])
    assert rows_of(database_dsn, [ADD, FAIL, add(1)], [add(2), fails, add(3)], [add(4)]) == [(1, 0), (4, 0)]


def test_the_first_error_is_raised_and_the_session_goes_on(database_dsn: str) -> None:
    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(database_dsn, autocommit=True) as connection:
            with pytest.raises(psycopg.errors.InvalidSqlStatementName):
                await prepared_calls.run_transactions(
                    connection, [CallStep(b"nothing")], [FAIL, CallStep(FAIL.name, [b"\0" * 4])]
                )
            await prepared_calls.run_transactions(connection, [CallStep(FAIL.name, [ONE])])
            assert await (await connection.execute("select 1")).fetchone() == (1,)

    asyncio.run(run())


def test_parameters_may_be_large(database_dsn: str) -> None:
    calls: list[Step] = [ADD, *(add(number, LARGE) for number in range(4))]
    assert rows_of(database_dsn, calls) == [(number, len(LARGE)) for number in range(4)]
