"""Writes outcomes into one table of the follower by sets: deletes, then updates, then inserts.

No order of single updates can swap two unique values. If the follower refuses an update, all rows that the range
changes are deleted and inserted again. The remaining and the inserted rows are then the source's rows at a commit, so
they cannot violate a constraint that held there.
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
"""Errors after which rows are deleted and inserted again; an identity `generated always` takes values only so."""


class TableOutcomes(ABC):
    """The outcomes of one table, in memory or in a temporary table."""

    statements: TableStatements

    @abstractmethod
    def has(self, operation: str) -> bool:
        """Return True if an outcome has this operation."""

    @abstractmethod
    def are_whole(self, operation: str) -> bool:
        """Return True if no row of an outcome with this operation lacks a value."""

    @abstractmethod
    def send(self, query: str, operation: str) -> int | None:
        """Execute a statement with these outcomes; returns the first seq whose row is missing, or None."""

    @abstractmethod
    def move(self) -> None:
        """Turn all updates and upserts into moves."""

    @abstractmethod
    def refused(self, query: str, operation: str) -> RowDiffersError:
        """Return the error for the first outcome that the follower refuses."""


def write_outcomes(follower: Connection, statements: TableStatements, outcomes: Sequence[RowOutcome]) -> None:
    """Write outcomes in the open transaction. Raises RowDiffersError."""
    if outcomes:
        write_sets(follower, _ListedOutcomes(follower, statements, outcomes))


def write_sets(follower: Connection, given: TableOutcomes) -> None:
    """Write the outcomes of one table in the open transaction. Raises RowDiffersError."""
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
    """Return the error for a row that the follower lacks."""
    table = str(statements.table)
    return RowDiffersError(
        f"table {table} of the follower lacks the row that seq {seq} changes: the table differs from the source's,"
        " so that transaction was not applied",
        table,
        seq,
    )


def present_row(statements: TableStatements, seq: int) -> RowDiffersError:
    """Return the error for a row that exists already, or whose unique value another row has."""
    table = str(statements.table)
    return RowDiffersError(
        f"table {table} of the follower has a row with the key, or a unique value, of the one that seq {seq} writes:"
        " the table differs from the source's, so that transaction was not applied",
        table,
        seq,
    )


class _ListedOutcomes(TableOutcomes):
    """The outcomes of one table in this process's memory."""

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
        """Insert the rows one by one to find the first that the follower refuses."""
        outcomes = self._by_operation[operation]
        for each in outcomes:
            try:
                send(self._follower, query, [each.element])
            except REFUSALS:
                return present_row(self.statements, each.seq)
        return present_row(self.statements, outcomes[-1].seq)


class _SetWriter:
    """One attempt to write outcomes. `final`: an error of the follower means that its rows differ."""

    def __init__(self, follower: Connection, given: TableOutcomes, *, final: bool = False) -> None:
        self._follower, self._given, self._statements, self._final = follower, given, given.statements, final
        self._moves = given.has("move")
        self._carries = self._moves and (bool(self._statements.table.own) or not given.are_whole("move"))

    def run(self) -> None:
        """Write the deletes, then the updates, then the inserts."""
        statements = self._statements
        if self._given.has("delete"):
            self._change("delete", statements.delete)
        if self._moves:
            self._remove()
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

    def _remove(self) -> None:
        """Delete the rows that get another key, or that may swap unique values."""
        if self._carries:
            self._follower.execute(self._statements.make_carried.encode())
        self._change("move", self._statements.take_rows if self._carries else self._statements.delete)
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
