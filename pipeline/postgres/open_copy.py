"""A COPY that stays open over many batches, and the statements of its transaction.

On the level of libpq: psycopg would take a session's prepared statements away after ROLLBACK TO.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import AsyncConnection, generators, pq
from psycopg.abc import PQGen
from psycopg.errors import error_from_result
from psycopg.rows import TupleRow
from psycopg.waiting import Wait

from pipeline.postgres.pipelined_copy import CHUNK, HEADER, TRAILER, roll_back

Answer = list[tuple[bytes | None, ...]]


class OpenCopy:
    """On one connection, which nobody else uses while `is_open`; an error leaves its transaction to be rolled back."""

    def __init__(self, connection: AsyncConnection[TupleRow]) -> None:
        self._connection = connection
        self.is_open = False

    async def execute(self, statements: str) -> Answer:
        """End the COPY, if one is open, and run these; returns the rows of the last one that has any columns."""
        await self.end()
        async with self._connection.lock:
            return await self._connection.wait(_execute(self._connection.pgconn, statements.encode()))

    async def ask(self, query: str, parameters: Sequence[bytes]) -> Answer:
        """End the COPY, if one is open; returns the rows of this query with these parameters, in binary form."""
        await self.end()
        async with self._connection.lock:
            return await self._connection.wait(_ask(self._connection.pgconn, query.encode(), parameters))

    async def write(self, copy: str, given: Sequence[bytes]) -> None:
        """Send rows to the COPY that is open, else to the one that this statement begins.

        An error in them may be raised by a later call.
        """
        pgconn = self._connection.pgconn
        async with self._connection.lock:
            if not self.is_open:
                await self._connection.wait(_begin(pgconn, copy.encode()))
                self.is_open = True
                given = [HEADER, *given]
            await self._connection.wait(_send(pgconn, b"".join(given)))

    async def abort(self) -> None:
        """Roll back the transaction, and end the COPY, if one is open: nothing that was sent is kept."""
        if self.is_open:
            self.is_open = False
            async with self._connection.lock:
                await self._connection.wait(_abort(self._connection.pgconn))
        await roll_back(self._connection)

    async def end(self) -> None:
        """End the COPY: all that was sent is in its table."""
        if not self.is_open:
            return
        self.is_open = False
        async with self._connection.lock:
            await self._connection.wait(_end(self._connection.pgconn))


def _execute(pgconn: pq.abc.PGconn, statements: bytes) -> PQGen[Answer]:
    pgconn.send_query(statements)
    return (yield from _answer(pgconn))


def _ask(pgconn: pq.abc.PGconn, query: bytes, parameters: Sequence[bytes]) -> PQGen[Answer]:
    pgconn.send_query_params(query, parameters, param_formats=[pq.Format.BINARY] * len(parameters))
    return (yield from _answer(pgconn))


def _answer(pgconn: pq.abc.PGconn) -> PQGen[Answer]:
    results = yield from generators.execute(pgconn)
    if results[-1].status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise error_from_result(results[-1])
    found = next((each for each in reversed(results) if each.nfields), results[-1])
    return [tuple(found.get_value(row, column) for column in range(found.nfields)) for row in range(found.ntuples)]


def _begin(pgconn: pq.abc.PGconn, copy: bytes) -> PQGen[None]:
    pgconn.send_query(copy)
    results = yield from generators.execute(pgconn)
    if results[-1].status != pq.ExecStatus.COPY_IN:
        raise error_from_result(results[-1])


def _send(pgconn: pq.abc.PGconn, data: bytes) -> PQGen[None]:
    pgconn.consume_input()
    try:
        for at in range(0, len(data), CHUNK):
            yield from generators.copy_to(pgconn, data[at : at + CHUNK], flush=False)
    except psycopg.OperationalError:  # the server has refused what was sent before, and ended the COPY
        yield from _require_copied(pgconn)
        raise


def _end(pgconn: pq.abc.PGconn) -> PQGen[None]:
    try:
        pgconn.put_copy_data(TRAILER)
        while pgconn.put_copy_end() == 0:
            yield Wait.W
    except psycopg.OperationalError:
        yield from _require_copied(pgconn)
        raise
    yield from _require_copied(pgconn)


def _abort(pgconn: pq.abc.PGconn) -> PQGen[None]:
    if pgconn.transaction_status == pq.TransactionStatus.ACTIVE:  # the server may have ended the COPY with an error
        while pgconn.put_copy_end(b"not wanted") == 0:
            yield Wait.W
        yield from generators.execute(pgconn)


def _require_copied(pgconn: pq.abc.PGconn) -> PQGen[None]:
    results = yield from generators.execute(pgconn)
    for result in results:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
