"""COPY data passed on from one connection to another: in blocks of bytes, of which no row becomes an object of ours."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import suppress

import psycopg
from psycopg import errors, generators, pq, sql
from psycopg.abc import PQGen
from psycopg.waiting import Wait

from pipeline.postgres.connections import Connection

BLOCK = 65_536
"""Bytes: so many are gathered, and passed on together."""
_PIECE = 2**20
"""The most bytes of one message: a row may be larger, and the driver waits for ever where the buffer cannot grow."""


def read(connection: Connection, query: sql.Composable) -> Generator[bytes, None, None]:
    """The data of a COPY TO STDOUT, in blocks. To be closed when it is left early."""
    pgconn, ended = connection.pgconn, False
    _expect(connection, query, pq.ExecStatus.COPY_OUT)
    try:
        while not ended:
            block, ended = connection.wait(_next(pgconn))
            if block:
                yield block
    except psycopg.Error:
        ended = True
        raise
    finally:
        if not ended:
            connection.cancel_safe()
            with suppress(psycopg.Error):
                while not connection.wait(_next(pgconn))[1]:
                    pass


def write(connection: Connection, query: sql.Composable, blocks: Iterable[bytes]) -> int:
    """Give them to a COPY FROM STDIN; returns the number of rows. What interrupts `blocks` ends it, and is raised."""
    pgconn = connection.pgconn
    _expect(connection, query, pq.ExecStatus.COPY_IN)
    try:
        for block in blocks:
            for at in range(0, len(block), _PIECE):
                connection.wait(generators.copy_to(pgconn, block[at : at + _PIECE] if len(block) > _PIECE else block))
    except BaseException:
        with suppress(psycopg.Error):
            connection.wait(generators.copy_end(pgconn, b"interrupted"))
        raise
    return connection.wait(generators.copy_end(pgconn, None)).command_tuples or 0


def _expect(connection: Connection, query: sql.Composable, status: pq.ExecStatus) -> None:
    connection.pgconn.send_query(query.as_string(connection).encode())
    results = connection.wait(generators.execute(connection.pgconn))
    if results[-1].status != status:
        raise errors.error_from_result(results[-1])


def _next(pgconn: pq.abc.PGconn) -> PQGen[tuple[bytes, bool]]:
    """The data that has arrived, a block of it if there is as much, and whether it is at its end."""
    found: list[memoryview] = []
    gathered = 0
    while gathered < BLOCK:
        size, data = pgconn.get_copy_data(1)
        if size > 0:
            found.append(data)
            gathered += size
        elif size < 0:
            results = yield from generators.execute(pgconn)
            if results[-1].status != pq.ExecStatus.COMMAND_OK:
                raise errors.error_from_result(results[-1])
            return b"".join(found), True
        elif found and gathered >= BLOCK // 4:
            break
        else:
            while not (yield Wait.R):
                continue
            pgconn.consume_input()
    return b"".join(found), False
