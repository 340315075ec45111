"""COPY in binary format, and the other statements of its transaction, at the level of libpq.

psycopg needs a round trip for each statement, and deallocates a session's prepared statements after a ROLLBACK.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import AsyncConnection, generators, pq
from psycopg.abc import PQGen
from psycopg.errors import error_from_result
from psycopg.rows import TupleRow
from psycopg.waiting import Wait

CHUNK = 1 << 17
"""Bytes of one CopyData message."""
HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""The bytes before the rows of a COPY in binary format."""
TRAILER = b"\xff\xff"
"""The bytes after the rows of a COPY in binary format."""

Answer = list[tuple[bytes | None, ...]]


async def copy_within(connection: AsyncConnection[TupleRow], statements: str, rows: Sequence[bytes]) -> bytes | None:
    """Run `statements` in two round trips, and send `rows` to the COPY … FROM STDIN that is one of them.

    Returns the first value of the row that the statement before the COPY returns. If it returns no row, neither the
    COPY nor a later statement runs, and None is returned. Then, and after an error, the transaction stays open.
    """
    async with connection.lock:
        return await connection.wait(_copy_within(connection.pgconn, statements.encode(), rows))


async def roll_back(connection: AsyncConnection[TupleRow]) -> None:
    """Roll back the open transaction, if one is open. Statements that the session has prepared stay."""
    async with connection.lock:
        if connection.info.transaction_status != pq.TransactionStatus.IDLE:
            await connection.wait(_execute(connection.pgconn, b"ROLLBACK"))


class OpenCopy:
    """A COPY that stays open over many batches.

    No other code uses the connection while `is_open`. After an error its transaction must be rolled back.
    """

    def __init__(self, connection: AsyncConnection[TupleRow]) -> None:
        self._connection = connection
        self.is_open = False

    async def execute(self, statements: str) -> Answer:
        """End the COPY, if one is open, and run statements; return the rows of the last one that has any columns."""
        await self.end()
        async with self._connection.lock:
            return await self._connection.wait(_execute(self._connection.pgconn, statements.encode()))

    async def ask(self, query: str, parameters: Sequence[bytes]) -> Answer:
        """End the COPY, if one is open; return the rows of this query with these parameters, in binary form."""
        await self.end()
        async with self._connection.lock:
            return await self._connection.wait(_ask(self._connection.pgconn, query.encode(), parameters))

    async def write(self, copy: str, rows: Sequence[bytes]) -> None:
        """Send rows to the open COPY; if none is open, the statement `copy` begins one.

        A later call may raise the error of these rows.
        """
        pgconn = self._connection.pgconn
        async with self._connection.lock:
            if not self.is_open:
                await self._connection.wait(_begin(pgconn, copy.encode()))
                self.is_open = True
                rows = [HEADER, *rows]
            await self._connection.wait(_send(pgconn, b"".join(rows)))

    async def end(self) -> None:
        """End the COPY, if one is open: all rows that were sent are in its table."""
        if self.is_open:
            self.is_open = False
            async with self._connection.lock:
                await self._connection.wait(_end(self._connection.pgconn))

    async def abort(self) -> None:
        """Roll back the transaction, and end the COPY, if one is open: no row that was sent is kept."""
        if self.is_open:
            self.is_open = False
            async with self._connection.lock:
                await self._connection.wait(_refuse(self._connection.pgconn))
        await roll_back(self._connection)


def _execute(pgconn: pq.abc.PGconn, statements: bytes) -> PQGen[Answer]:
    pgconn.send_query(statements)
    return (yield from _answer(pgconn))


def _ask(pgconn: pq.abc.PGconn, query: bytes, parameters: Sequence[bytes]) -> PQGen[Answer]:
    pgconn.send_query_params(query, parameters, param_formats=[pq.Format.BINARY] * len(parameters))
    return (yield from _answer(pgconn))


def _answer(pgconn: pq.abc.PGconn) -> PQGen[Answer]:
    results = yield from _require_done(pgconn)
    found = next((each for each in reversed(results) if each.nfields), results[-1])
    return [tuple(found.get_value(row, column) for column in range(found.nfields)) for row in range(found.ntuples)]


def _copy_within(pgconn: pq.abc.PGconn, statements: bytes, rows: Sequence[bytes]) -> PQGen[bytes | None]:
    results = yield from _begin(pgconn, statements)
    if not results[-2].ntuples:
        yield from _refuse(pgconn)
        return None
    yield from _send(pgconn, b"".join((HEADER, *rows)))
    yield from _end(pgconn)
    return results[-2].get_value(0, 0)


def _begin(pgconn: pq.abc.PGconn, statements: bytes) -> PQGen[list[pq.abc.PGresult]]:
    pgconn.send_query(statements)
    results: list[pq.abc.PGresult] = yield from generators.execute(pgconn)
    if results[-1].status != pq.ExecStatus.COPY_IN:
        raise error_from_result(results[-1])
    return results


def _send(pgconn: pq.abc.PGconn, data: bytes) -> PQGen[None]:
    pgconn.consume_input()
    try:
        for at in range(0, len(data), CHUNK):
            yield from generators.copy_to(pgconn, data[at : at + CHUNK], flush=False)
    except psycopg.OperationalError:  # the server has refused earlier rows, and ended the COPY
        yield from _require_done(pgconn)
        raise


def _end(pgconn: pq.abc.PGconn) -> PQGen[None]:
    try:
        pgconn.put_copy_data(TRAILER)
        while pgconn.put_copy_end() == 0:
            yield Wait.W
    except psycopg.OperationalError:
        yield from _require_done(pgconn)
        raise
    yield from _require_done(pgconn)


def _refuse(pgconn: pq.abc.PGconn) -> PQGen[None]:
    """End the COPY with an error, unless an error of the server has ended it already."""
    if pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
        while pgconn.put_copy_end(b"not wanted") == 0:
            yield Wait.W
        yield from generators.execute(pgconn)


def _require_done(pgconn: pq.abc.PGconn) -> PQGen[list[pq.abc.PGresult]]:
    results: list[pq.abc.PGresult] = yield from generators.execute(pgconn)
    if results and results[-1].status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise error_from_result(results[-1])
    return results
