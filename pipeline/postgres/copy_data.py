"""The data of COPY as a connection sends and receives it: rows, or blocks of rows that never become objects.

The server sends each row in its own message. This module takes little more than half the time per row that psycopg's
Copy takes.
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
class _PieceSize:
    """How many rows are handed over together.

    A piece has at most `rows` rows. It is complete when it has `bytes` bytes, and has at least `least` bytes unless it
    is the last one.
    """

    rows: int
    bytes: int
    least: int


BLOCK = 65_536
"""The bytes that are gathered before they are handed over together."""
_ROWS = _PieceSize(1_000, 2**62, 1)
_BLOCKS = _PieceSize(2**62, BLOCK, BLOCK // 4)
_LONGEST_MESSAGE = 2**20
"""The most bytes of one message: a row may be longer, and the driver waits forever if its buffer cannot grow."""


def read_rows(connection: Connection, query: sql.Composable) -> Generator[list[memoryview], None, None]:
    """Yield the rows of a COPY TO STDOUT as they arrive, at most 1000 at a time. Close the generator to end early."""
    return _read(connection, query, _ROWS)


def read_blocks(connection: Connection, query: sql.Composable) -> Generator[bytes, None, None]:
    """Yield the rows of a COPY TO STDOUT in blocks of about BLOCK bytes. Close the generator to end early."""
    with closing(_read(connection, query, _BLOCKS)) as found:
        for each in found:
            yield b"".join(each)


async def read_rows_async(connection: AsyncConnection, query: sql.Composable) -> AsyncGenerator[list[memoryview], None]:
    """Yield rows as `read_rows` does, for asyncio. A caller that ends early must close the connection."""
    pgconn, ended = connection.pgconn, False
    await connection.wait(_begin(pgconn, query.as_string(connection).encode(), pq.ExecStatus.COPY_OUT))
    while not ended:
        found, ended = await connection.wait(_next(pgconn, _ROWS))
        yield found


def _read(connection: Connection, query: sql.Composable, wanted: _PieceSize) -> Generator[list[memoryview], None, None]:
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


def write_blocks(connection: Connection, query: sql.Composable, blocks: Iterable[bytes]) -> int:
    """Send blocks to a COPY FROM STDIN; return its number of rows. An error in `blocks` ends the COPY and is raised."""
    pgconn = connection.pgconn
    connection.wait(_begin(pgconn, query.as_string(connection).encode(), pq.ExecStatus.COPY_IN))
    try:
        for block in blocks:
            for at in range(0, len(block), _LONGEST_MESSAGE):
                message = block[at : at + _LONGEST_MESSAGE] if len(block) > _LONGEST_MESSAGE else block
                connection.wait(generators.copy_to(pgconn, message))
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


def _next(pgconn: pq.abc.PGconn, wanted: _PieceSize) -> PQGen[tuple[list[memoryview], bool]]:
    """Return the next piece, and True if the COPY has ended."""
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
