"""Outcomes written into one table of the follower by sets: deletes, then updates, then inserts.

No order of single updates takes two unique values from each other. Where the follower objects, all rows that the range
touches are taken out and put back: what is left and what is put in are together the source's rows at a commit, so no
constraint that held there can be broken by them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import psycopg

from pipeline.errors import RowDiffersError
from pipeline.followers.applying.elements import REFUSALS, send
from pipeline.followers.applying.outcomes import RowOutcome
from pipeline.followers.applying.table_statements import TableStatements
from pipeline.postgres.connections import Connection

_OBJECTIONS = (*REFUSALS, psycopg.errors.GeneratedAlways)
"""After which rows are taken out and put back; an identity that is generated always takes a value only so."""


class TableOutcomes(ABC):
    """Outcomes of one table, wherever they are."""

    statements: TableStatements

    @abstractmethod
    def has(self, operation: str) -> bool:
        """Whether there is one."""

    @abstractmethod
    def are_whole(self, operation: str) -> bool:
        """Whether these have all values of their rows."""

    @abstractmethod
    def send(self, query: str, operation: str) -> int | None:
        """Execute a statement with these; returns the first seq that is missing, where it returns any."""

    @abstractmethod
    def move(self) -> None:
        """From now on all that are updates or upserts are moves."""

    @abstractmethod
    def refused(self, query: str, operation: str) -> RowDiffersError:
        """The error for the first that the follower does not take."""


def write_outcomes(follower: Connection, statements: TableStatements, outcomes: Sequence[RowOutcome]) -> None:
    """Write them, in the transaction that is open. Raises RowDiffersError."""
    if outcomes:
        write_sets(follower, _ListedOutcomes(follower, statements, outcomes))


def write_sets(follower: Connection, given: TableOutcomes) -> None:
    """The same."""
    try:
        with follower.transaction():
            _SetWriter(follower, given).run()
        return
    except _OBJECTIONS as error:
        if not given.statements.table.key:
            raise given.refused(given.statements.insert, "insert") from error
    given.move()
    _SetWriter(follower, given, final=True).run()


def missing_row(statements: TableStatements, seq: int) -> RowDiffersError:
    """The error for a row that is not there."""
    table = str(statements.table)
    return RowDiffersError(
        f"table {table} of the follower lacks the row that seq {seq} changes: it is not as the source's was before that"
        " transaction, which is not applied",
        table,
        seq,
    )


def present_row(statements: TableStatements, seq: int) -> RowDiffersError:
    """The error for a row that is there already, or for another that has one of its unique values."""
    table = str(statements.table)
    return RowDiffersError(
        f"table {table} of the follower has a row with the key, or a unique value, of the one that seq {seq} writes:"
        " it is not as the source's was before that transaction, which is not applied",
        table,
        seq,
    )


class _ListedOutcomes(TableOutcomes):
    """Outcomes in our memory."""

    def __init__(self, follower: Connection, statements: TableStatements, outcomes: Sequence[RowOutcome]) -> None:
        self._follower, self.statements = follower, statements
        self._outcomes = outcomes
        self._divide()

    def _divide(self) -> None:
        self._by_operation: dict[str, list[RowOutcome]] = {}
        for each in self._outcomes:
            self._by_operation.setdefault(each.operation, []).append(each)

    def has(self, operation: str) -> bool:
        return operation in self._by_operation

    def are_whole(self, operation: str) -> bool:
        return all(each.whole for each in self._by_operation[operation])

    def send(self, query: str, operation: str) -> int | None:
        return send(self._follower, query, (each.element for each in self._by_operation[operation]))

    def move(self) -> None:
        changed = ("update", "upsert")
        self._outcomes = [
            replace(each, operation="move") if each.operation in changed else each for each in self._outcomes
        ]
        self._divide()

    def refused(self, query: str, operation: str) -> RowDiffersError:
        """Insert them one by one, to find it."""
        outcomes = self._by_operation[operation]
        for each in outcomes:
            try:
                send(self._follower, query, [each.element])
            except REFUSALS:
                return present_row(self.statements, each.seq)
        return present_row(self.statements, outcomes[-1].seq)


class _SetWriter:
    """One attempt. `final`: an objection of the follower means that it differs."""

    def __init__(self, follower: Connection, given: TableOutcomes, *, final: bool = False) -> None:
        self._follower, self._given, self._statements, self._final = follower, given, given.statements, final
        self._moves = given.has("move")
        self._carries = self._moves and (bool(self._statements.table.own) or not given.are_whole("move"))

    def run(self) -> None:
        """Deletes, updates, inserts."""
        statements = self._statements
        if self._given.has("delete"):
            self._change("delete", statements.delete)
        if self._moves:
            self._take()
        if self._given.has("update"):
            self._change("update", statements.update)
        for operation in ("insert", "upsert"):
            if self._given.has(operation):
                self._add(statements.insert if operation == "insert" else statements.upsert, operation)
        if self._moves:
            self._put()

    def _change(self, operation: str, query: str) -> None:
        if (seq := self._given.send(query, operation)) is not None:
            raise missing_row(self._statements, seq)

    def _take(self) -> None:
        """Take the rows out that get another key, or may have to give a value to each other."""
        if self._carries:
            self._follower.execute(self._statements.make_carried.encode())
        self._change("move", self._statements.take if self._carries else self._statements.delete)
        if self._final and self._statements.table.uniques:
            self._given.send(self._statements.clear, "move")

    def _put(self) -> None:
        if not self._carries:
            self._add(self._statements.insert, "move")
            return
        self._add(self._statements.put_back, "move")
        self._add(self._statements.put_new, "move")
        self._follower.execute("drop table pg_temp.pipeline_carried")

    def _add(self, query: str, operation: str) -> None:
        if not self._final:
            self._given.send(query, operation)
            return
        try:
            with self._follower.transaction():
                self._given.send(query, operation)
        except REFUSALS as error:
            raise self._given.refused(query, operation) from error
