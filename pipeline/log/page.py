"""Read events after a seq, a page at a time. All readers for clients use this, each with its own shape.

`EventPageReader` composes the statement and interprets its rows; `read` and `read_async` only execute it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, LiteralString, Protocol, TypeVar

from psycopg import sql

from pipeline.config import patterns
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import AsyncConnection, Connection
from pipeline.postgres.queries import statement

SPAN = 50_000
"""The most seqs that one page covers: a filter that matches little does not occupy a connection for long."""
_GROWTH = 4
_REMEMBERED_TABLES = 1_000
"""The most names of tables for which a filter remembers whether it wants them."""
DEFAULT_LOG = sql.Identifier("pipeline", "events")
"""The view of the default events table."""


class NumberedEvent(Protocol):
    """An event in any shape."""

    @property
    def seq(self) -> int:
        """The place of the event in the log."""


class FilterableEvent(Protocol):
    """An event with the properties by which a filter chooses."""

    @property
    def table(self) -> str:
        """`schema.table`."""

    @property
    def action(self) -> str:
        """The action, for instance insert."""


T = TypeVar("T", bound=NumberedEvent)


@dataclass(frozen=True)
class EventFilter:
    """The events that a reader wants: patterns `schema.table`, in which `*` matches anything, and actions; empty: all.

    `within`: further patterns; if there are any, one of them has to match as well.
    """

    tables: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    _named: dict[str, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def wants(self, event: FilterableEvent) -> bool:
        """Return True if the reader wants this event."""
        if self.actions and event.action not in self.actions:
            return False
        if (named := self._named.get(event.table)) is None:
            named = patterns.matches(self.tables, event.table) and patterns.matches(self.within, event.table)
            if len(self._named) >= _REMEMBERED_TABLES:
                self._named.clear()
            self._named[event.table] = named
        return named


EVERYTHING = EventFilter()


@dataclass(frozen=True)
class EventShape(Generic[T]):
    """The form in which a reader gets events: `columns` of the relation `e`, including seq; `make` turns their values
    into an event.

    `size`: an SQL expression over these columns: how many bytes an event takes; with `sized`, `make` is given it first.
    """

    columns: LiteralString
    size: LiteralString
    make: Callable[..., T]
    sized: bool = False


@dataclass(frozen=True)
class EventPageRequest:
    """The next events after a seq: `rows` of them, or until they take `bytes`, whichever is less.

    The last event may exceed `bytes`. Legacy tables may repeat a seq: a page holds all events of its last seq.
    """

    after: int
    rows: int
    bytes: int
    wanted: EventFilter = EVERYTHING


@dataclass(frozen=True)
class EventPage(Generic[T]):
    """All wanted events up to the seq `upto`. `size`: the number of their characters.

    `full`: the page ended at a limit of the request, so more events may follow. `next_rows`: how many to ask for next,
    so that no large events are read only to be discarded.
    """

    entries: Sequence[T]
    upto: int
    head: int
    size: int
    full: bool
    next_rows: int

    @property
    def beyond_head(self) -> bool:
        """True if the request began after the newest seq that this process knows of the log."""
        return self.upto > self.head

    @property
    def at_head(self) -> bool:
        """True if the log ended with this page."""
        return self.upto >= self.head


class EventPageReader(Generic[T]):
    """Reads pages of one relation that has the columns of an events table, in one shape."""

    def __init__(self, events: sql.Identifier, shape: EventShape[T]) -> None:
        self.statement = queries.composed(
            statement("log", "read_page"), events=events, columns=sql.SQL(shape.columns), size=sql.SQL(shape.size)
        )
        self._newest = queries.composed("select coalesce(max(seq), 0) from {events}", events=events)
        self._make = shape.make
        self._first = 4 if shape.sized else 5

    def read(self, connection: Connection, request: EventPageRequest) -> EventPage[T]:
        """Read the requested page."""
        return self.page(request, connection.execute(self.statement, values(request), prepare=True).fetchall())

    async def read_async(self, connection: AsyncConnection, request: EventPageRequest) -> EventPage[T]:
        """Read the requested page, for asyncio."""
        cursor = await connection.execute(self.statement, values(request), prepare=True)
        return self.page(request, await cursor.fetchall())

    async def newest_async(self, connection: AsyncConnection) -> int:
        """Return the newest seq of the relation; 0 if it has no event."""
        row = await (await connection.execute(self._newest)).fetchone()
        return int(row[0]) if row else 0

    def page(self, request: EventPageRequest, rows: Sequence[tuple[Any, ...]]) -> EventPage[T]:
        """Return the page that the statement's rows make."""
        head, bound, found = rows[0][:3]
        if bound is None:
            return EventPage([], request.after, head, 0, full=False, next_rows=request.rows)
        entries = [self._make(*row[self._first :]) for row in rows] if found else []
        size = sum(row[4] for row in rows) if found else 0
        full = bool(found) and (found >= request.rows or len(entries) < found)
        upto = entries[-1].seq if full else min(head, bound - 1)
        return EventPage(entries, upto, head, size, full, _next_rows(request, len(entries), size))


def values(request: EventPageRequest) -> dict[str, object]:
    """Return the values of the statement's parameters."""
    return {
        "after": request.after,
        "span": SPAN,
        "tables": patterns.likes(request.wanted.tables),
        "within": patterns.likes(request.wanted.within),
        "actions": list(request.wanted.actions),
        "rows": request.rows,
        "bytes": request.bytes,
    }


def _next_rows(request: EventPageRequest, events: int, size: int) -> int:
    """Return how many events to ask for next: more each time, but no more than fit by their mean size."""
    if not events:
        return request.rows
    return max(1, min(_GROWTH * request.rows, request.bytes * events // max(1, size)))


class OldestKeptSeq:
    """Reads the seq from which on every event of a table is kept.

    Call it after a read: retention records what it drops before it drops it, so if the events just read are still kept,
    none of them was missed. `sees_retention`: whether this user may read what retention has dropped.
    `sees_jumps`: whether it may ask for jumps.
    """

    def __init__(self, table: EventsTable, *, sees_retention: bool = True, sees_jumps: bool = True) -> None:
        dropped = "(select dropped_below from pipeline.retention where events_table = %(table)s)"
        # No partition begins with the first seq behind a jump.
        before_jump = "pipeline.before_jump(%(table)s, {from_seq} - 1) + 1"
        from_seq = sql.SQL("k.from_seq")
        kept = sql.SQL(statement("log", "kept_from")).format(
            retention=sql.SQL(dropped) if sees_retention else sql.NULL,
            kept_from=sql.SQL(before_jump).format(from_seq=from_seq) if sees_jumps else from_seq,
        )
        self._statement = queries.composed("{kept}", kept=kept)
        self._with_lost = queries.composed(
            "select k.*, {lost} from ({kept}) k", lost=sql.SQL(LostSeqCheck.BEFORE), kept=kept
        )
        self._values = {"table": str(table), "relation": table.identifier.as_string(None)}

    def read(self, connection: Connection) -> int:
        """Return the seq."""
        return int(queries.value(connection, self._statement, self._values))

    async def read_async(self, connection: AsyncConnection) -> int:
        """Return the seq, for asyncio."""
        row = await (await connection.execute(self._statement, self._values)).fetchone()
        assert row is not None  # noqa: S101  an aggregate
        return int(row[0])

    async def read_with_lost_async(self, connection: AsyncConnection, after: int) -> tuple[int, LostPlace | None]:
        """Return the seq, and the result of `LostSeqCheck` for a reader at `after`, in one round trip."""
        row = await (await connection.execute(self._with_lost, {**self._values, "after": after})).fetchone()
        assert row is not None  # noqa: S101  an aggregate
        return int(row[0]), None if row[1] is None else LostPlace(after, row[1])


class NewestSeq:
    """Reads the newest seq of a table that a reader can have received, for a page that is beyond its head.

    The seq is None at a standby, which may be behind.
    """

    def __init__(self, table: EventsTable) -> None:
        self._statement = queries.composed(statement("log", "newest_seq"), events=table.identifier)
        self._values = {"schema": table.schema, "sequence": table.sequence_name}

    def read(self, connection: Connection) -> int | None:
        """Return the seq."""
        newest: int | None = queries.value(connection, self._statement, self._values)
        return newest

    async def read_async(self, connection: AsyncConnection) -> int | None:
        """Return the seq, for asyncio."""
        row = await (await connection.execute(self._statement, self._values)).fetchone()
        return None if row is None or row[0] is None else int(row[0])


class LostSeqCheck:
    """Checks whether a reader's seq belongs to an event that the log lost when it was restored.

    Call it when a reader begins: no page ends at such a seq. `sees_jumps`: whether this user may ask for jumps.
    """

    BEFORE: LiteralString = "nullif(pipeline.before_jump(%(table)s, %(after)s::bigint), %(after)s::bigint)"
    """The newest seq before it, as an SQL expression; null if the log still has what this reader has read."""

    def __init__(self, table: EventsTable, *, sees_jumps: bool = True) -> None:
        self._table, self._sees = str(table), sees_jumps

    def read(self, connection: Connection, after: int) -> LostPlace | None:
        """Return the place at which to continue; None if the log still has what this reader has read."""
        if not self._sees:
            return None
        before = queries.value(connection, "select " + self.BEFORE, {"table": self._table, "after": after})
        return None if before is None else LostPlace(after, before)


@dataclass(frozen=True)
class LostPlace:
    """A reader's seq, of an event that the log lost, and the newest seq before it, where the reader can continue."""

    after: int
    before: int

    def __str__(self) -> str:
        return (
            f"seq {self.after} belongs to an event that was lost: the log was restored, and skips the seqs behind "
            f"{self.before}; continue after {self.before}"
        )


def beyond(after: int, newest: int | None, kept_from: int) -> str | None:
    """Return an error for a reader at `after` if the log never handed out that seq, otherwise None."""
    if newest is None or after <= (highest := max(newest, kept_from - 1)):
        return None
    return f"seq {after} is beyond the newest event, which is {highest}: a reader there misses what comes next"


def is_expired(after: int, kept_from: int) -> bool:
    """Return True if a reader at seq `after` has missed events, since some that follow it are no longer kept."""
    return after + 1 < kept_from
