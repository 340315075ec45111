"""Events after a seq, a page at a time: the one way in which clients' readers read the log, each in its own shape.

`Pages` makes the statement and understands its rows; `read` and `read_async` only carry them to the database and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, LiteralString, Protocol, TypeVar

from psycopg import sql

from pipeline.config import patterns
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import AsyncConnection, Connection
from pipeline.postgres.queries import statement

SPAN = 50_000
"""seqs that one page covers at most: a filter that wants little keeps no connection for long."""
_GROWTH = 4
DEFAULT_LOG = sql.Identifier("pipeline", "events")
"""The view of the default events table."""


class Numbered(Protocol):
    """An event in any shape."""

    @property
    def seq(self) -> int:
        """Its place in the log."""


class Described(Protocol):
    """What a filter looks at."""

    @property
    def table(self) -> str:
        """`schema.table`."""

    @property
    def action(self) -> str:
        """Such as insert."""


T = TypeVar("T", bound=Numbered)


@dataclass(frozen=True)
class Filter:
    """What a reader wants: patterns `schema.table` in which `*` matches anything, and actions; empty means all.

    `within`: more patterns, of which one has to match as well.
    """

    tables: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    within: tuple[str, ...] = ()

    def wants(self, event: Described) -> bool:
        """Whether it wants this event."""
        named = patterns.matches(self.tables, event.table) and patterns.matches(self.within, event.table)
        return named and (not self.actions or event.action in self.actions)


EVERYTHING = Filter()


@dataclass(frozen=True)
class Shape(Generic[T]):
    """How a reader takes an event: `columns` of the relation `e`, the seq among them, and what is made of their values.

    `size`: an expression over these columns, the characters that an event takes.
    """

    columns: LiteralString
    size: LiteralString
    make: Callable[..., T]


@dataclass(frozen=True)
class PageRequest:
    """The next events after a seq: `rows` of them, or until they take `bytes`, whichever is less.

    The last one may go beyond `bytes`, and all that have its seq are in the page.
    """

    after: int
    rows: int
    bytes: int
    wanted: Filter = EVERYTHING


@dataclass(frozen=True)
class Page(Generic[T]):
    """Events, and `upto`, up to where that is all there is of what was wanted. `size`: the characters they take.

    `full`: it ended since it had enough, so that more may be near. `next_rows`: how many to ask for next, so that large
    events are not read in vain.
    """

    entries: Sequence[T]
    upto: int
    head: int
    size: int
    full: bool
    next_rows: int

    @property
    def at_head(self) -> bool:
        """Whether there was nothing after it."""
        return self.upto >= self.head


class Pages(Generic[T]):
    """Pages of one relation that has the columns of an events table, in one shape."""

    def __init__(self, events: sql.Identifier, shape: Shape[T]) -> None:
        self.statement = sql.SQL(statement("log", "read_page")).format(
            events=events, columns=sql.SQL(shape.columns), size=sql.SQL(shape.size)
        )
        self._make = shape.make

    def read(self, connection: Connection, request: PageRequest) -> Page[T]:
        """The page that was asked for."""
        return self.page(request, connection.execute(self.statement, values(request), prepare=True).fetchall())

    async def read_async(self, connection: AsyncConnection, request: PageRequest) -> Page[T]:
        """The same for asyncio."""
        cursor = await connection.execute(self.statement, values(request), prepare=True)
        return self.page(request, await cursor.fetchall())

    def page(self, request: PageRequest, rows: Sequence[tuple[Any, ...]]) -> Page[T]:
        """What the statement's rows say."""
        head, bound, found = rows[0][:3]
        if bound is None:
            return Page([], request.after, request.after, 0, full=False, next_rows=request.rows)
        entries = [self._make(*row[5:]) for row in rows] if found else []
        size = sum(row[4] for row in rows) if found else 0
        full = bool(found) and (found >= request.rows or len(entries) < found)
        upto = entries[-1].seq if full else min(head, bound - 1)
        return Page(entries, upto, head, size, full, _next_rows(request, len(entries), size))


def values(request: PageRequest) -> dict[str, object]:
    """The values of the statement's parameters."""
    return {
        "after": request.after,
        "span": SPAN,
        "tables": patterns.likes(request.wanted.tables),
        "within": patterns.likes(request.wanted.within),
        "actions": list(request.wanted.actions),
        "rows": request.rows,
        "bytes": request.bytes,
    }


def _next_rows(request: PageRequest, events: int, size: int) -> int:
    """More and more, but by their mean size no more than fit."""
    if not events:
        return request.rows
    return max(1, min(_GROWTH * request.rows, request.bytes * events // max(1, size)))


class Kept:
    """From which seq on every event of a table is kept.

    Ask after a read: whoever drops events says so before, so what was read without a gap then was read whole.
    `sees_retention`: whether this user may see what retention has dropped.
    """

    def __init__(self, table: EventsTable, *, sees_retention: bool = True) -> None:
        dropped = "(select dropped_below from pipeline.retention where events_table = %(table)s)"
        self._statement = sql.SQL(statement("log", "kept_from")).format(
            retention=sql.SQL(dropped) if sees_retention else sql.NULL
        )
        self._values = {"table": str(table), "relation": table.identifier.as_string(None)}

    def read(self, connection: Connection) -> int:
        """The seq."""
        return int(queries.value(connection, self._statement, self._values))

    async def read_async(self, connection: AsyncConnection) -> int:
        """The same for asyncio."""
        row = await (await connection.execute(self._statement, self._values)).fetchone()
        assert row is not None  # noqa: S101  an aggregate
        return int(row[0])


def is_cut(after: int, kept_from: int) -> bool:
    """Whether something that comes after a seq is no longer kept."""
    return after + 1 < kept_from
