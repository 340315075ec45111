"""Outcomes written into one table of the follower by sets: deletes, then updates, then inserts.

No order of single updates takes two unique values from each other. Where the follower objects, all rows that the range
touches are taken out and put back: what is left and what is put in are together the source's rows at a commit, so no
constraint that held there can be broken by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import psycopg

from pipeline.errors import Differs
from pipeline.followers.applying.elements import REFUSALS, send
from pipeline.followers.applying.outcomes import Outcome
from pipeline.followers.applying.table_statements import TableStatements
from pipeline.postgres.connections import Connection

_OBJECTIONS = (*REFUSALS, psycopg.errors.GeneratedAlways)
"""After which rows are taken out and put back; an identity that is generated always takes a value only so."""


def write(follower: Connection, statements: TableStatements, outcomes: Sequence[Outcome]) -> None:
    """Write them, in the transaction that is open. Raises Differs."""
    if not outcomes:
        return
    try:
        with follower.transaction():
            _Writing(follower, statements, outcomes).run()
        return
    except _OBJECTIONS as error:
        if not statements.table.key:
            raise _differs_by_row(follower, statements.insert, statements, outcomes) from error
    moved = [replace(each, operation="move") if each.operation in ("update", "upsert") else each for each in outcomes]
    _Writing(follower, statements, moved, final=True).run()


def missing(statements: TableStatements, seq: int) -> Differs:
    """The error for a row that is not there."""
    table = str(statements.table)
    return Differs(
        f"table {table} of the follower lacks the row that seq {seq} changes: it is not as the source's was before that"
        " transaction, which is not applied",
        table,
        seq,
    )


def present(statements: TableStatements, seq: int) -> Differs:
    """The error for a row that is there already, or for another that has one of its unique values."""
    table = str(statements.table)
    return Differs(
        f"table {table} of the follower has a row with the key, or a unique value, of the one that seq {seq} writes:"
        " it is not as the source's was before that transaction, which is not applied",
        table,
        seq,
    )


class _Writing:
    """One attempt. `final`: an objection of the follower means that it differs."""

    def __init__(
        self, follower: Connection, statements: TableStatements, outcomes: Sequence[Outcome], *, final: bool = False
    ) -> None:
        self._follower, self._statements, self._final = follower, statements, final
        self._by_operation: dict[str, list[Outcome]] = {}
        for each in outcomes:
            self._by_operation.setdefault(each.operation, []).append(each)
        self._moves = self._by_operation.get("move", [])
        self._carries = bool(statements.table.own) or not all(each.whole for each in self._moves)

    def run(self) -> None:
        """Deletes, updates, inserts."""
        statements = self._statements
        self._change("delete", statements.delete)
        self._take()
        self._change("update", statements.update)
        for operation in ("insert", "upsert"):
            if found := self._by_operation.get(operation):
                self._add(statements.insert if operation == "insert" else statements.upsert, found)
        self._put()

    def _change(self, operation: str, query: str) -> None:
        if found := self._by_operation.get(operation):
            self._require_found(send(self._follower, query, (each.element for each in found)))

    def _require_found(self, seq: int | None) -> None:
        if seq is not None:
            raise missing(self._statements, seq)

    def _take(self) -> None:
        """Take the rows out that get another key, or may have to give a value to each other."""
        if not self._moves:
            return
        if self._carries:
            self._follower.execute(self._statements.make_carried.encode())
        query = self._statements.take if self._carries else self._statements.delete
        self._require_found(send(self._follower, query, (each.element for each in self._moves)))

    def _put(self) -> None:
        if not self._moves:
            return
        if not self._carries:
            self._add(self._statements.insert, self._moves)
            return
        self._add(self._statements.put_back, self._moves)
        self._add(self._statements.put_new, self._moves)
        self._follower.execute("drop table pg_temp.pipeline_carried")

    def _add(self, query: str, outcomes: Sequence[Outcome]) -> None:
        if not self._final:
            send(self._follower, query, (each.element for each in outcomes))
            return
        try:
            with self._follower.transaction():
                send(self._follower, query, (each.element for each in outcomes))
        except REFUSALS as error:
            raise _differs_by_row(self._follower, query, self._statements, outcomes) from error


def _differs_by_row(
    follower: Connection, query: str, statements: TableStatements, outcomes: Sequence[Outcome]
) -> Differs:
    """Insert them one by one, to find the first that the follower does not take."""
    for each in outcomes:
        try:
            send(follower, query, [each.element])
        except REFUSALS:
            return present(statements, each.seq)
    return present(statements, outcomes[-1].seq)
