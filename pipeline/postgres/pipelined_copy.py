"""A whole staging transaction in two round trips: its statements are sent as one string, with the COPY among them."""

from __future__ import annotations

from psycopg import AsyncConnection, errors, generators, pq
from psycopg.abc import PQGen
from psycopg.rows import TupleRow
from psycopg.waiting import Wait

CHUNK = 1 << 17
"""Bytes of one CopyData message."""
HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
"""What stands before and behind the rows of a COPY in binary format."""


async def copy_within(connection: AsyncConnection[TupleRow], statements: str, rows: bytes) -> bytes | None:
    """Run `statements`, where the one before the COPY … FROM STDIN returns a row or none, and send `rows` to the COPY.

    Returns the first value of that row. None when there is no row: then neither the COPY nor any statement after it
    was run. In that case, and when it raises, the transaction is left open.
    """
    async with connection.lock:
        return await connection.wait(_send_and_copy(connection.pgconn, statements.encode(), rows))


async def roll_back(connection: AsyncConnection[TupleRow]) -> None:
    """End the transaction that is open, if one is. Statements that the session has prepared stay."""
    async with connection.lock:
        if connection.info.transaction_status != pq.TransactionStatus.IDLE:
            await connection.wait(_execute(connection.pgconn, b"ROLLBACK"))


def _execute(pgconn: pq.abc.PGconn, command: bytes) -> PQGen[None]:
    pgconn.send_query(command)
    results = yield from generators.execute(pgconn)
    if results[-1].status != pq.ExecStatus.COMMAND_OK:
        raise errors.error_from_result(results[-1])


def _send_and_copy(pgconn: pq.abc.PGconn, statements: bytes, rows: bytes) -> PQGen[bytes | None]:
    pgconn.send_query(statements)
    results = yield from generators.execute(pgconn)
    if results[-1].status != pq.ExecStatus.COPY_IN:
        raise errors.error_from_result(results[-1])
    answer = results[-2].get_value(0, 0) if results[-2].ntuples else None
    if answer is not None:
        for at in range(0, len(rows), CHUNK):
            yield from generators.copy_to(pgconn, rows[at : at + CHUNK], flush=False)
    while pgconn.put_copy_end(b"not wanted" if answer is None else None) == 0:
        yield Wait.W
    results = yield from generators.execute(pgconn)
    if answer is not None and results[-1].status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise errors.error_from_result(results[-1])
    return answer
