"""Prepared statements of a session, and transactions of them that are sent in one message (libpq's pipeline mode)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from psycopg import AsyncConnection, Error, OperationalError, generators, pq
from psycopg.abc import PQGen
from psycopg.errors import error_from_result
from psycopg.rows import TupleRow
from psycopg.waiting import Wait

_FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_ABORTED)


class PrepareStep(NamedTuple):
    """Prepare a statement under this name, for the rest of the session."""

    name: bytes
    text: bytes


class CallStep(NamedTuple):
    """Execute a prepared statement with these parameters, in binary form."""

    name: bytes
    parameters: Sequence[bytes | None] = ()


Step = PrepareStep | CallStep


class PreparedStatements:
    """Statements that one session has prepared, so that each is parsed and planned once."""

    def __init__(self, connection: AsyncConnection[TupleRow], suffix: str, first: str | None = None) -> None:
        """Begin with no prepared statement. `suffix` ends all names: no two writers of a session share a name.

        `first`: the statement that begins each transaction which prepares; it limits how long that waits for a lock.
        """
        self._connection, self._suffix, self._first = connection, suffix, first
        self._prepared: dict[str, bytes] = {}
        """The name of each prepared statement, as it is sent."""

    def name(self, statement: str) -> str:
        """Return the name under which a statement is prepared."""
        return f"{statement}_{self._suffix}"

    def call(self, statement: str, parameters: Sequence[bytes | None] = ()) -> CallStep:
        """Return the call of a prepared statement with these parameters, in binary form."""
        return CallStep(self._prepared[statement], parameters)

    async def prepare(self, texts: Mapping[str, str]) -> None:
        """Prepare the statements that are not prepared yet, in this order, each in its own transaction.

        Raises the first error; a statement that failed is tried again by the next call.
        """
        if texts.keys() <= self._prepared.keys():
            return
        missing = [each for each in texts if each not in self._prepared]
        errors = await _try_each(self._connection, [self._steps(each, texts[each]) for each in missing])
        done = [each for each, error in zip(missing, errors, strict=True) if error is None]
        self._prepared.update({each: self.name(each).encode() for each in done})
        _raise_first(errors)

    def _steps(self, statement: str, text: str) -> list[Step]:
        before = [] if self._first in (None, statement) else [CallStep(self.name(self._first).encode())]
        return [*before, PrepareStep(self.name(statement).encode(), text.encode())]


async def run_transactions(connection: AsyncConnection[TupleRow], *transactions: Sequence[Step]) -> None:
    """Run transactions, each of which begins with its first step and commits after its last.

    Raises the first error. The transaction in which it occurred is rolled back; those after it run nevertheless. The
    connection must be outside of a transaction.
    """
    _raise_first(await _try_each(connection, transactions))


async def _try_each(
    connection: AsyncConnection[TupleRow], transactions: Sequence[Sequence[Step]]
) -> list[Error | None]:
    """Run transactions as `run_transactions` does; return for each of them the error that has ended it, or None."""
    async with connection.lock:
        failed = await connection.wait(_run(connection.pgconn, transactions))
    return [None if result is None else error_from_result(result) for result in failed]


def _raise_first(errors: Sequence[Error | None]) -> None:
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
    """Return the result of one step, or of the end of a transaction."""
    results: list[pq.abc.PGresult] = yield from generators.fetch_many(pgconn)
    if results:
        return results[-1]
    raise OperationalError("the connection was lost before all of its statements were answered")


def _send(pgconn: pq.abc.PGconn, step: Step) -> None:
    if isinstance(step, PrepareStep):
        pgconn.send_prepare(step.name, step.text)
    else:
        formats = [pq.Format.BINARY] * len(step.parameters)
        pgconn.send_query_prepared(step.name, step.parameters, param_formats=formats)
