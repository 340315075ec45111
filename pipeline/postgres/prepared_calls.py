"""Transactions of prepared statements, all sent in one message: libpq's pipeline mode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psycopg import AsyncConnection, Error, OperationalError, generators, pq
from psycopg.abc import PQGen
from psycopg.errors import error_from_result
from psycopg.rows import TupleRow
from psycopg.waiting import Wait

_FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_ABORTED)


@dataclass(frozen=True)
class Prepare:
    """Prepare a statement under this name, for the rest of the session."""

    name: bytes
    text: bytes


@dataclass(frozen=True)
class Call:
    """Execute a prepared statement with these parameters, in binary form."""

    name: bytes
    parameters: Sequence[bytes | None] = ()


Step = Prepare | Call


async def run(connection: AsyncConnection[TupleRow], *transactions: Sequence[Step]) -> None:
    """Run each of these as a transaction of its own, which begins with its first step and commits behind its last.

    Raises the first error: what it came in is rolled back, and what comes behind that is run all the same. The
    connection must be outside of a transaction.
    """
    raise_first(await try_each(connection, *transactions))


async def try_each(connection: AsyncConnection[TupleRow], *transactions: Sequence[Step]) -> list[Error | None]:
    """As `run`; returns for each of the transactions the error that has ended it, or None."""
    async with connection.lock:
        failed = await connection.wait(_run(connection.pgconn, transactions))
    return [None if result is None else error_from_result(result) for result in failed]


def raise_first(errors: Iterable[Error | None]) -> None:
    """Raise the first of these, if there is one."""
    for error in errors:
        if error is not None:
            raise error


def _run(pgconn: pq.abc.PGconn, transactions: Sequence[Sequence[Step]]) -> PQGen[list[pq.abc.PGresult | None]]:
    pgconn.enter_pipeline_mode()
    for steps in transactions:
        for step in steps:
            _send(pgconn, step)
        pgconn.pipeline_sync()
    while pgconn.flush():
        if (yield Wait.RW) & Wait.R:
            pgconn.consume_input()
    failed: list[pq.abc.PGresult | None] = [None] * len(transactions)
    for number in range(len(transactions)):
        while (result := (yield from _result(pgconn))).status != pq.ExecStatus.PIPELINE_SYNC:
            if failed[number] is None and result.status in _FAILED:
                failed[number] = result
    pgconn.exit_pipeline_mode()
    return failed


def _result(pgconn: pq.abc.PGconn) -> PQGen[pq.abc.PGresult]:
    """What one step, or the end of a transaction, has come to."""
    results: list[pq.abc.PGresult] = yield from generators.fetch_many(pgconn)
    if results:
        return results[-1]
    raise OperationalError("the connection was lost before all of its statements were answered")


def _send(pgconn: pq.abc.PGconn, step: Step) -> None:
    if isinstance(step, Prepare):
        pgconn.send_prepare(step.name, step.text)
    else:
        formats = [pq.Format.BINARY] * len(step.parameters)
        pgconn.send_query_prepared(step.name, step.parameters, param_formats=formats)
