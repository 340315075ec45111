"""COPY's text format (Postgres manual, "COPY", Text Format): it prints values as the stream does, by their output
functions, which a cast to text does not for every type.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator
from contextlib import suppress

import psycopg
from psycopg import errors, generators, pq, sql
from psycopg.abc import PQGen
from psycopg.waiting import Wait

from pipeline.postgres.connections import AsyncConnection, Connection
from pipeline.wal.messages import Row

AT_ONCE = 1_000
"""The most rows that are handed over together."""
_NULL = b"\\N"
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_CHARACTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def lines(connection: Connection, query: sql.Composable) -> Generator[list[bytes], None, None]:
    """The rows of a COPY TO STDOUT as they come, each without its newline: the server sends one in each message.

    In little more than half the time that psycopg's Copy takes for each row. To be closed when it is left early.
    """
    pgconn, ended = connection.pgconn, False
    connection.wait(_begin(pgconn, query.as_string(connection).encode()))
    try:
        while not ended:
            found, ended = connection.wait(_next(pgconn))
            yield found
    except psycopg.Error:
        ended = True
        raise
    finally:
        if not ended:
            connection.cancel_safe()
            with suppress(psycopg.Error):
                while not connection.wait(_next(pgconn))[1]:
                    pass


async def arriving(connection: AsyncConnection, query: sql.Composable) -> AsyncGenerator[list[bytes], None]:
    """The same for asyncio, and as few rows at a time as have come. Who leaves it early must close the connection."""
    pgconn, ended = connection.pgconn, False
    await connection.wait(_begin(pgconn, query.as_string(connection).encode()))
    while not ended:
        found, ended = await connection.wait(_next(pgconn))
        yield found


def _begin(pgconn: pq.abc.PGconn, query: bytes) -> PQGen[None]:
    pgconn.send_query(query)
    results = yield from generators.execute(pgconn)
    if results[-1].status != pq.ExecStatus.COPY_OUT:
        raise errors.error_from_result(results[-1])


def _next(pgconn: pq.abc.PGconn) -> PQGen[tuple[list[bytes], bool]]:
    """The rows that have arrived, at least one of them unless it is at its end, and whether it is."""
    found: list[bytes] = []
    while len(found) < AT_ONCE:
        size, data = pgconn.get_copy_data(1)
        if size > 0:
            found.append(bytes(data[:-1]))
        elif size < 0:
            results = yield from generators.execute(pgconn)
            if results[-1].status != pq.ExecStatus.COMMAND_OK:
                raise errors.error_from_result(results[-1])
            return found, True
        elif found:
            break
        else:
            while not (yield Wait.R):
                continue
            pgconn.consume_input()
    return found, False


def values(line: bytes, width: int) -> Row:
    """The values of a row of so many columns; None for NULL."""
    if width == 0:
        return []
    fields = line.split(b"\t")
    if b"\\" in line:
        return [None if each == _NULL else _plain(each) for each in fields]
    return list(fields)


def _plain(field: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: _CHARACTERS.get(found[1], found[1]), field) if b"\\" in field else field
