"""A pool of connections to the pipeline database, which it lends to requests for a transaction or some statements.

If a loan is long, a statement is slow or the database is silent: `SilenceProbe` finds out which. If the database is
silent, loans end with the error of a lost connection, and the pool refuses new loans until the database answers again.
"""

from __future__ import annotations

import asyncio
import logging
import select
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from pipeline.postgres import connections, session_settings, silence
from pipeline.postgres.connections import AsyncConnection
from pipeline.postgres.silence import SilenceProbe

MAX_CONNECTIONS = 10
"""The most connections of the pool. A long poll holds none while it waits."""
_WAIT_SECONDS = 5.0
_AGAIN_SECONDS = 0.5
"""Seconds between two attempts to reach a silent database."""


class Pool:
    """A pool for requests. A request waits up to 5 s for a connection, then gets PoolTimeout: "try again later"."""

    def __init__(self, dsn: str, name: str) -> None:
        """Describe the pool, without opening it. `name`: the application name of its connections ("pipeline api")."""
        self._pool: AsyncConnectionPool[AsyncConnection] = AsyncConnectionPool(
            connections.conninfo(dsn, application_name=name),
            min_size=1,
            max_size=MAX_CONNECTIONS,
            open=False,
            timeout=_WAIT_SECONDS,
            max_waiting=1000,
            reconnect_timeout=60,
            kwargs={"autocommit": True},
            configure=_configure,
            check=_check,
        )
        self.silence = SilenceProbe(dsn, "pipeline database")
        self._is_silent = False
        self._loans: dict[AsyncConnection, float] = {}
        self._cut = set[AsyncConnection]()
        self._watcher: asyncio.Task[None] | None = None
        logging.getLogger("psycopg.pool").setLevel("CRITICAL")  # each failed request is reported anyway

    async def open(self) -> None:
        """Begin to connect, without waiting for a connection."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Close all connections."""
        if self._watcher is not None:
            self._watcher.cancel()
        await self._pool.close(timeout=2)

    @asynccontextmanager
    async def transaction(self, *, durable: bool = True) -> AsyncIterator[AsyncConnection]:
        """Lend a connection with a transaction, which the end of the block commits, and an error rolls back.

        Unless `durable`, the commit does not wait for the disk: a crash of the database may undo it.
        """
        async with self.connection() as connection, connection.transaction():
            if not durable:
                await connection.execute("set local synchronous_commit = off")
            yield connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection in which each statement is one transaction: reading so takes two round trips less."""
        if self._is_silent:
            raise self.silence.error
        async with self._pool.connection() as connection:
            self._loans[connection] = time.monotonic()
            if self._watcher is None:
                self._watcher = asyncio.create_task(self._watch(), name="silence")
            try:
                yield connection
            except psycopg.Error as error:
                if connection in self._cut:
                    raise self.silence.error from error
                raise
            finally:
                del self._loans[connection]
                self._cut.discard(connection)

    async def rows(self, statement: LiteralString, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Execute one statement in its own transaction; return its rows by column name."""
        async with self.connection() as connection:
            return await rows(connection, statement, parameters)

    async def _watch(self) -> None:
        """End lent connections that wait for a silent database, for as long as connections are lent."""
        try:
            await asyncio.sleep(silence.PATIENCE_SECONDS)
            while self._is_silent or self._loans:
                now = time.monotonic()
                lasting = [each for each, since in self._loans.items() if now - since >= silence.PATIENCE_SECONDS]
                if self._is_silent or lasting:
                    self._is_silent = await self.silence.is_silent()
                for each in lasting if self._is_silent else ():
                    if self._loans.get(each, now) < now:
                        self._cut.add(each)
                        connections.hang_up(each)
                await asyncio.sleep(_AGAIN_SECONDS)
        finally:
            self._watcher, self._is_silent = None, False


async def rows(
    connection: AsyncConnection, statement: LiteralString, parameters: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Execute a statement; return its rows by column name."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        return await (await cursor.execute(statement, parameters)).fetchall()


async def _configure(connection: AsyncConnection) -> None:
    await connection.execute(session_settings.statement(session_settings.API).encode())


async def _check(connection: AsyncConnection) -> None:
    """Raise OperationalError for a connection that has ended.

    The server is asked only if data has arrived: between two statements it sends little but the end of the connection.
    """
    arrived = select.poll()
    arrived.register(connection.fileno(), select.POLLIN)
    if arrived.poll(0):
        await AsyncConnectionPool.check_connection(connection)
