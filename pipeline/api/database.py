"""The API's connections to the pipeline database: a pool, with one transaction for each request."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, LiteralString

import psycopg
from fastapi import Depends
from psycopg.rows import TupleRow, dict_row
from psycopg_pool import AsyncConnectionPool
from starlette.requests import HTTPConnection

from pipeline.postgres import connections, session_settings
from pipeline.readers.wakeups import Wakeups

AsyncConnection = psycopg.AsyncConnection[TupleRow]
MAX_CONNECTIONS = 10
"""A long poll holds no connection while it waits."""
_WAIT_SECONDS = 5.0


class Database:
    """Requests wait up to 5 s for a connection, then get PoolTimeout, which becomes "try again later"."""

    def __init__(self, dsn: str) -> None:
        self._pool: AsyncConnectionPool[AsyncConnection] = AsyncConnectionPool(
            connections.conninfo(dsn, application_name="pipeline api"),
            min_size=1,
            max_size=MAX_CONNECTIONS,
            open=False,
            timeout=_WAIT_SECONDS,
            max_waiting=1000,
            reconnect_timeout=60,
            configure=_configure,
            check=AsyncConnectionPool.check_connection,
        )
        logging.getLogger("psycopg.pool").setLevel("CRITICAL")  # each failed request is reported anyway

    async def open(self) -> None:
        """Start connecting, without waiting for it."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close(timeout=2)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A connection with a transaction, committed at the end of the block, rolled back when it raises."""
        async with self._pool.connection() as connection:
            yield connection

    async def rows(self, statement: LiteralString, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows of one statement, in its own transaction, by column name."""
        async with self.transaction() as connection:
            return await rows(connection, statement, parameters)


async def rows(
    connection: AsyncConnection, statement: LiteralString, parameters: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The rows of a statement by column name."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        return await (await cursor.execute(statement, parameters)).fetchall()


async def _configure(connection: AsyncConnection) -> None:
    await connection.execute(session_settings.statement(session_settings.API).encode())
    await connection.commit()


def _database(connection: HTTPConnection) -> Database:
    found: Database = connection.app.state.database
    return found


def _wakeups(connection: HTTPConnection) -> Wakeups:
    found: Wakeups = connection.app.state.wakeups
    return found


TheDatabase = Annotated[Database, Depends(_database)]
TheWakeups = Annotated[Wakeups, Depends(_wakeups)]
