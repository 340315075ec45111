"""Sets the sequences of a follower's tables past the source's, because no event tells the values of a sequence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.errors import FollowerError
from pipeline.followers.registry import NamedTable
from pipeline.postgres import connections, queries, reading_session, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_AT_ONCE = 200
"""The number of sequences that one statement reads."""


@dataclass(frozen=True)
class _ColumnSequence:
    """A sequence that a column takes its values from. `table`: the index of its table in the list that was given."""

    table: int
    column: str
    schema: str
    name: str
    increment: int
    may_read: bool
    may_set: bool

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)


@dataclass(frozen=True)
class _SequenceState:
    """The state of a sequence: if `called`, it has given out the value `last`, else it gives out `last` next."""

    last: int
    called: bool

    def next(self, increment: int) -> int:
        return self.last + increment if self.called else self.last


@dataclass(frozen=True)
class MovedSequence:
    """A sequence of the follower with its next value `before` and `after`; equal if it was past the source's."""

    sequence: str
    before: int
    after: int


class FollowerSequences:
    """The sequences of these tables, looked up once, so that a missing one is known before anything is changed."""

    def __init__(self, source: Connection, follower: Connection, tables: Sequence[NamedTable]) -> None:
        """Find the sequences at both sides. Raises FollowerError if this user may not read or set one of them."""
        self._source, self._follower, self._tables = source, follower, tables
        self._at_source = _find_sequences(source, tables, by_oid=True)
        self._at_follower = _find_sequences(follower, tables, by_oid=False)
        _require_rights("the source", "select", (each for each in self._at_source if not each.may_read))
        refused = (each for each in self._at_follower if not (each.may_read and each.may_set))
        _require_rights("the follower", "select, update", refused)

    def missing(self) -> list[str]:
        """Return columns whose sequence the follower lacks, or has with the other direction of counting."""
        has = {(each.table, each.column, each.increment > 0) for each in self._at_follower}
        lacking = [each for each in self._at_source if (each.table, each.column, each.increment > 0) not in has]
        return list(dict.fromkeys(self._column(each.table, each.column) for each in lacking))

    def move(self) -> list[MovedSequence]:
        """Set each sequence past the source's current state; a sequence that is further stays. Raises FollowerError."""
        at_source = _read_states(self._source, self._at_source)
        at_follower = _read_states(self._follower, self._at_follower)
        return [self._move(name, at_source, at_follower[name]) for name in at_follower]

    def _move(self, name: str, at_source: dict[str, _SequenceState], state: _SequenceState) -> MovedSequence:
        columns = {(each.table, each.column) for each in self._at_follower if str(each) == name}
        mine = next(each for each in self._at_follower if str(each) == name)
        up = mine.increment > 0
        wanted = [
            at_source[str(each)]
            for each in self._at_source
            if (each.table, each.column) in columns and (each.increment > 0) == up
        ]
        before = state.next(mine.increment)
        choose = max if up else min
        after = choose([before, *(each.next(mine.increment) for each in wanted)])
        if after != before:
            furthest = next(each for each in wanted if each.next(mine.increment) == after)
            self._set(mine, furthest)
        return MovedSequence(name, before, after)

    def _set(self, sequence: _ColumnSequence, state: _SequenceState) -> None:
        name = sequence.identifier.as_string(self._follower)
        try:
            self._follower.execute(
                "select pg_catalog.setval(%s::pg_catalog.regclass, %s, %s)", (name, state.last, state.called)
            )
        except psycopg.errors.NumericValueOutOfRange as error:
            raise FollowerError(
                f"sequence {sequence} of the follower cannot be set to the source's: {connections.one_line(error)}; "
                "alter it there, and run this again"
            ) from error

    def _column(self, table: int, column: str) -> str:
        of = self._tables[table]
        return f"{of.table_schema}.{of.table_name}.{column}"


def _find_sequences(connection: Connection, tables: Sequence[NamedTable], *, by_oid: bool) -> list[_ColumnSequence]:
    values = {
        "oids": [each.table_oid if by_oid else None for each in tables],
        "schemas": [each.table_schema for each in tables],
        "names": [each.table_name for each in tables],
    }
    return queries.rows(connection, _ColumnSequence, statement("followers", "list_sequences"), values)


def _quoted(*names: str) -> str:
    return sql.Identifier(*names).as_string(None)


def _require_rights(where: str, rights: str, refused: Iterator[_ColumnSequence]) -> None:
    if (first := next(refused, None)) is not None:
        raise FollowerError(
            f"{where}: this user may not {' and '.join(rights.split(', '))} sequence {first}, and nothing was changed; "
            f"run there: grant usage on schema {_quoted(first.schema)} to that user; "
            f"grant {rights} on sequence {_quoted(first.schema, first.name)} to that user"
        )


def _read_states(connection: Connection, found: Iterable[_ColumnSequence]) -> dict[str, _SequenceState]:
    """Return the states of these sequences by their names."""
    listed = list({str(each): each for each in found}.items())
    states = dict[str, _SequenceState]()
    for first in range(0, len(listed), _AT_ONCE):
        part = listed[first : first + _AT_ONCE]
        each = (
            sql.SQL("select {}::int, last_value, is_called from {}").format(sql.Literal(index), sequence.identifier)
            for index, (_, sequence) in enumerate(part)
        )
        with reading_session.transaction(connection, session_settings.SOURCE):  # a table may have got that name
            rows = connection.execute(sql.SQL(" union all ").join(each)).fetchall()
        for index, last, called in rows:
            states[part[index][0]] = _SequenceState(last, called)
    return states
