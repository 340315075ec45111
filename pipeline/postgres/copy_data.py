"""COPY's data as it comes from a connection and goes to another: rows, or blocks of which no row becomes an object.

In little more than half the time that psycopg's Copy takes for each row: the server sends one in each message.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass

import psycopg
from psycopg import errors, generators, pq, sql
from psycopg.abc import PQGen
from psycopg.waiting import Wait

from pipeline.postgres.connections import AsyncConnection, Connection


@dataclass(frozen=True)
class _Piece:
    """What is handed over together: at most so many rows, from so many bytes on nothing more, and not fewer than the
    least unless nothing more comes.
    """

    rows: int
    bytes: int
    least: int


BLOCK = 65_536
"""Bytes: so many are gathered, and passed on together."""
_ROWS = _Piece(1_000, 2**62, 1)
_BLOCKS = _Piece(2**62, BLOCK, BLOCK // 4)
_PIECE = 2**20
"""The most bytes of one message: a row may be larger, and the driver waits for ever where the buffer cannot grow."""


def rows(connection: Connection, query: sql.Composable) -> Generator[list[memoryview], None, None]:
    """The rows of a COPY TO STDOUT as they come, a thousand at most. To be closed when it is left early."""
    return _read(connection, query, _ROWS)


def read(connection: Connection, query: sql.Composable) -> Generator[bytes, None, None]:
    """The same in blocks."""
    with closing(_read(connection, query, _BLOCKS)) as found:
        for each in found:
            yield b"".join(each)


async def arriving(connection: AsyncConnection, query: sql.Composable) -> AsyncGenerator[list[memoryview], None]:
    """As `rows` for asyncio, and as few at a time as have come. Who leaves it early must close the connection."""
    pgconn, ended = connection.pgconn, False
    await connection.wait(_begin(pgconn, query.as_string(connection).encode(), pq.ExecStatus.COPY_OUT))
    while not ended:
        found, ended = await connection.wait(_next(pgconn, _ROWS))
        yield found


def _read(connection: Connection, query: sql.Composable, wanted: _Piece) -> Generator[list[memoryview], None, None]:
    pgconn, ended = connection.pgconn, False
    connection.wait(_begin(pgconn, query.as_string(connection).encode(), pq.ExecStatus.COPY_OUT))
    try:
        while not ended:
            found, ended = connection.wait(_next(pgconn, wanted))
            if found:
                yield found
    except psycopg.Error:
        ended = True
        raise
    finally:
        if not ended:
            connection.cancel_safe()
            with suppress(psycopg.Error):
                while not connection.wait(_next(pgconn, wanted))[1]:
                    pass


def write(connection: Connection, query: sql.Composable, blocks: Iterable[bytes]) -> int:
    """Give them to a COPY FROM STDIN; returns the number of rows. What interrupts `blocks` ends it, and is raised."""
    pgconn = connection.pgconn
    connection.wait(_begin(pgconn, query.as_string(connection).encode(), pq.ExecStatus.COPY_IN))
    try:
        for block in blocks:
            for at in range(0, len(block), _PIECE):
                connection.wait(generators.copy_to(pgconn, block[at : at + _PIECE] if len(block) > _PIECE else block))
    except BaseException:
        with suppress(psycopg.Error):
            connection.wait(generators.copy_end(pgconn, b"interrupted"))
        raise
    return connection.wait(generators.copy_end(pgconn, None)).command_tuples or 0


def _begin(pgconn: pq.abc.PGconn, query: bytes, expected: pq.ExecStatus) -> PQGen[None]:
    pgconn.send_query(query)
    results = yield from generators.execute(pgconn)
    if results[-1].status != expected:
        raise errors.error_from_result(results[-1])


def _next(pgconn: pq.abc.PGconn, wanted: _Piece) -> PQGen[tuple[list[memoryview], bool]]:
    """The rows that have arrived, not too few of them unless it is at its end, and whether it is."""
    found: list[memoryview] = []
    gathered = 0
    while gathered < wanted.bytes and len(found) < wanted.rows:
        size, data = pgconn.get_copy_data(1)
        if size > 0:
            found.append(data)
            gathered += size
        elif size < 0:
            results = yield from generators.execute(pgconn)
            if results[-1].status != pq.ExecStatus.COMMAND_OK:
                raise errors.error_from_result(results[-1])
            return found, True
        elif found and gathered >= wanted.least:
            break
        else:
            while not (yield Wait.R):
                continue
            pgconn.consume_input()
    return found, False
