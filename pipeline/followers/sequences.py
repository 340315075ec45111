"""Sequences of a follower's tables set past the source's: no event says what a sequence has given out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.errors import FollowerError
from pipeline.followers.registry import TableName
from pipeline.postgres import connections, queries, reading_session, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_AT_ONCE = 200
"""Sequences that one statement reads."""


@dataclass(frozen=True)
class _Found:
    """A sequence that a column takes its values from. `table`: its place among those that were asked for."""

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
class _State:
    """What a sequence has given out: `last`, unless it is not `called`: then it gives that next."""

    last: int
    called: bool

    def next(self, increment: int) -> int:
        return self.last + increment if self.called else self.last


@dataclass(frozen=True)
class Moved:
    """A sequence of the follower: what it gave next `before`, and gives next `after`; the same where it was further."""

    sequence: str
    before: int
    after: int


class Sequences:
    """Those of these tables. Looked up once, so that what is missing is known before anything is changed."""

    def __init__(self, source: Connection, follower: Connection, tables: Sequence[TableName]) -> None:
        """Raises FollowerError where one may not be read, or set."""
        self._source, self._follower, self._tables = source, follower, tables
        self._theirs = _find(source, tables, by_oid=True)
        self._ours = _find(follower, tables, by_oid=False)
        _require("the source", "select", (each for each in self._theirs if not each.may_read))
        refused = (each for each in self._ours if not (each.may_read and each.may_set))
        _require("the follower", "select, update", refused)

    def missing(self) -> list[str]:
        """Columns that have a sequence at the source only, or one there that counts the other way."""
        has = {(each.table, each.column, each.increment > 0) for each in self._ours}
        lacking = [each for each in self._theirs if (each.table, each.column, each.increment > 0) not in has]
        return list(dict.fromkeys(self._column(each.table, each.column) for each in lacking))

    def move(self) -> list[Moved]:
        """Set each past the source's, as it is now; one that is further stays. Raises FollowerError."""
        theirs, ours = _read(self._source, self._theirs), _read(self._follower, self._ours)
        return [self._move(name, theirs, ours[name]) for name in ours]

    def _move(self, name: str, theirs: dict[str, _State], state: _State) -> Moved:
        columns = {(each.table, each.column) for each in self._ours if str(each) == name}
        mine = next(each for each in self._ours if str(each) == name)
        up = mine.increment > 0
        wanted = [
            theirs[str(each)]
            for each in self._theirs
            if (each.table, each.column) in columns and (each.increment > 0) == up
        ]
        before = state.next(mine.increment)
        choose = max if up else min
        after = choose([before, *(each.next(mine.increment) for each in wanted)])
        if after != before:
            furthest = next(each for each in wanted if each.next(mine.increment) == after)
            self._set(mine, furthest)
        return Moved(name, before, after)

    def _set(self, sequence: _Found, state: _State) -> None:
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


def _find(connection: Connection, tables: Sequence[TableName], *, by_oid: bool) -> list[_Found]:
    values = {
        "oids": [each.table_oid if by_oid else None for each in tables],
        "schemas": [each.table_schema for each in tables],
        "names": [each.table_name for each in tables],
    }
    return queries.rows(connection, _Found, statement("followers", "list_sequences"), values)


def _quoted(*names: str) -> str:
    return sql.Identifier(*names).as_string(None)


def _require(where: str, rights: str, refused: Iterator[_Found]) -> None:
    if (first := next(refused, None)) is not None:
        raise FollowerError(
            f"{where}: this user may not {' and '.join(rights.split(', '))} sequence {first}, and nothing was changed; "
            f"run there: grant usage on schema {_quoted(first.schema)} to that user; "
            f"grant {rights} on sequence {_quoted(first.schema, first.name)} to that user"
        )


def _read(connection: Connection, found: Iterable[_Found]) -> dict[str, _State]:
    """By name."""
    listed = list({str(each): each for each in found}.items())
    states = dict[str, _State]()
    for first in range(0, len(listed), _AT_ONCE):
        part = listed[first : first + _AT_ONCE]
        each = (
            sql.SQL("select {}::int, last_value, is_called from {}").format(sql.Literal(place), sequence.identifier)
            for place, (_, sequence) in enumerate(part)
        )
        with reading_session.transaction(connection, session_settings.SOURCE):  # a table may have that name by now
            rows = connection.execute(sql.SQL(" union all ").join(each)).fetchall()
        for place, last, called in rows:
            states[part[place][0]] = _State(last, called)
    return states
