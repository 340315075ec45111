"""Reads the outcome of events for each row: what they make of it. The pipeline database combines a row's events.

Small results are read as objects. Large results are streamed as COPY text, without an object for each row.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from pipeline.errors import NotFollowableError
from pipeline.followers.applying import rendering
from pipeline.followers.applying.followed_tables import FollowedColumn, FollowedTable
from pipeline.log.table import EventsTable
from pipeline.postgres import copy_data
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

Operation = Literal["insert", "update", "delete", "move", "upsert", "truncate"]
"""The kinds of changes of a row. `move`: an update that changes the key. `upsert`: it is unknown if the row exists."""
T = TypeVar("T")
_FOLDER = "followers.applying"
_NO_KEY = sql.SQL("false")

_BY_KEY: dict[str, sql.Composable] = {
    "contents": sql.SQL(""),
    "left": sql.SQL("e.left_pk"),
    "known_by": sql.SQL("e.record_pk"),
}


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """The outcome of a range of events for one row. `seq`: its first event. `whole`: `element` has all values."""

    operation: Operation
    seq: int
    whole: bool
    element: str


@dataclass(frozen=True, slots=True)
class OrderedEvent:
    """An event that is written by itself. `table`: an oid, for a truncate perhaps of a partition.

    `element`: None for a truncate.
    """

    operation: Operation
    seq: int
    whole: bool
    element: str | None
    table: int


class OutcomeReader:
    """Reads outcomes from one events table, for the current versions of the tables; others need a new reader."""

    def __init__(self, log: Connection, source: uuid.UUID, events_table: EventsTable) -> None:
        self._log, self._source, self._events_table = log, source, events_table
        self._composed: dict[int, str] = {}

    def folded(self, table: FollowedTable, after: int, upto: int) -> list[RowOutcome]:
        """Return the combined outcome of the events in (after, upto] for each row, in the order of `seq`.

        Raises NotFollowableError if a new row lacks a value, or if a changed row has no key.
        """
        if table.oid not in self._composed:
            self._composed[table.oid] = self._fold(table).as_string(None)
        found = self._rows(RowOutcome, self._composed[table.oid], after, upto)
        for each in found:
            require_whole(table, each)
            _require_key(table, each)
        return found

    def _fold(self, table: FollowedTable) -> sql.Composed:
        return sql.SQL(statement(_FOLDER, "fold_events")).format(
            **self._fold_of(table),
            element=rendering.element(
                table,
                rendering.old_key(table, "f", sql.SQL("f.left_pk is not null")),
                seq="l.seq",
                lenient="l.lenient",
            ),
        )

    def _fold_of(self, table: FollowedTable) -> dict[str, sql.Composable]:
        keyless = not table.key
        return {
            **self._range(table),
            "action": sql.SQL("case when e.action = 'read' then 'insert' else e.action end" if keyless else "e.action"),
            "lenient": _NO_KEY if keyless else rendering.lenient(table),
            "left_pk": rendering.left_pk(table),
            "names": rendering.names(table.columns),
            **row_identity(table),
        }

    def new_rows(self, table: FollowedTable, after: int, upto: int) -> Generator[bytes, None, None]:
        """Yield the rows that the events in (after, upto] add, as blocks of COPY text, if all events add rows.

        Rows that lack a value are left out. Close the generator.
        """
        return self._copied("relay_new_rows", table, after, upto, new_row(table))

    def relayed(self, table: FollowedTable, after: int, upto: int) -> Generator[bytes, None, None]:
        """Yield the rows of `folded`, in any order, as blocks of COPY text for `make_given`. Close the generator."""
        return self._copied("relay_folded", table, after, upto, folded(table, self._events_table))

    def _copied(
        self, name: str, table: FollowedTable, after: int, upto: int, values: sql.Composable
    ) -> Generator[bytes, None, None]:
        given = {**self._fold_of(table), "after": sql.Literal(after), "upto": sql.Literal(upto), "values": values}
        query = sql.SQL(statement(_FOLDER, name)).format(**given)
        return copy_data.read_blocks(self._log, sql.SQL("copy ({}) to stdout").format(query))

    def steps(self, after: int, upto: int, events: int) -> list[int]:
        """Return seqs from `after` to `upto` inclusive, with at most `events` events between two of them."""
        query = sql.SQL(statement(_FOLDER, "steps")).format(events=self._events_table.identifier)
        inside = self._log.execute(query, {"after": after, "upto": upto, "events": events}).fetchall()
        return [after, *(seq for (seq,) in inside), upto]

    def in_order(self, tables: Sequence[FollowedTable], after: int, upto: int) -> list[OrderedEvent]:
        """Return the events in (after, upto] of all these tables, in the order of the log."""
        if not tables:
            return []
        each = sql.SQL("\nunion all\n").join(self._ordered(table) for table in tables)
        return self._rows(OrderedEvent, sql.SQL("{} order by seq").format(each).as_string(None), after, upto)

    def _rows(self, shape: type[T], query: str, after: int, upto: int) -> list[T]:
        """Read rows with a raw cursor, which does not interpret a percent sign in a name."""
        cursor = psycopg.RawCursor(self._log, row_factory=class_row(shape))
        return cursor.execute(query, (after, upto), prepare=True).fetchall()

    def _ordered(self, table: FollowedTable) -> sql.Composable:
        moved = rendering.changes_key(table)
        old = rendering.old_key(table, "e", moved) if table.key else rendering.old_row(table)
        return sql.SQL(statement(_FOLDER, "events_in_order")).format(
            **self._range(table),
            lenient=rendering.lenient(table),
            keyed=sql.Literal(bool(table.key)),
            changes_key=moved,
            element=rendering.element(table, old, seq="e.seq", lenient="e.lenient"),
        )

    def _range(self, table: FollowedTable) -> dict[str, sql.Composable]:
        return {
            "events": self._events_table.identifier,
            "source": sql.Literal(self._source),
            "table": sql.Literal(table.oid),
            "after": sql.SQL("$1::bigint"),
            "upto": sql.SQL("$2::bigint"),
            "counts": rendering.counts(table),
            "in_copy": rendering.in_copy(table),
            "row": rendering.row(table),
            "columns": rendering.columns(table),
        }


def require_whole(table: FollowedTable, outcome: RowOutcome | OrderedEvent) -> None:
    """Raise NotFollowableError if a new row lacks a value, which nothing else can provide."""
    if outcome.operation == "insert" and not outcome.whole:
        raise NotFollowableError(
            f"table {table} of the follower stops before seq {outcome.seq}: the log lacks a value of that new row",
            str(table),
            outcome.seq,
            "incomplete",
        )


def _require_key(table: FollowedTable, outcome: RowOutcome) -> None:
    """Raise NotFollowableError if a row is changed by a key that only some partitions have."""
    if not table.key and outcome.operation not in ("insert", "upsert"):
        raise NotFollowableError(
            f"table {table} of the follower stops before seq {outcome.seq}: it changes a row by a key that only some"
            " partitions have, so that it cannot be found",
            str(table),
            outcome.seq,
            "keyless",
        )


def row_identity(table: FollowedTable) -> dict[str, sql.Composable]:
    """Return the parts of a fold that identify rows: more columns, the identity before an update, and after it.

    A fold knows a row by its key, or by all of its values if two rows may share a key. That can happen if the key is
    deferrable, because such a key is unique only at a commit. The log does not tell that a key is deferrable. But the
    table's replica identity is then `full`, so events have complete old rows, whose values tell rows apart. A fold
    treats equal rows as one.
    """
    renamed = any(len(column.source.names) > 1 for column in table.columns)
    # Partitions may have different replica identities.
    if not table.full or not table.key or renamed or table.partitions:
        return _BY_KEY
    # The old text of a json value may not be in the log.
    kept = sql.SQL("array[{}]::text[]").format(
        sql.SQL(", ").join(rendering.name(column.source) for column in table.columns if column.as_text)
    )
    given = {"kept": kept, "names": rendering.names(table.columns), "lenient": rendering.lenient(table)}
    contents = sql.SQL(
        ", md5((e.record - {kept})::text) as content,"
        " case when e.action = 'update' and e.changes - {kept} <> '{{}}'"
        " then md5(((e.record || e.changes) - {kept})::text) end as left_content,"
        " not {lenient} and e.record ?& {names} and (e.action <> 'update' or e.changes is not null) as is_told"
    ).format(**given)
    # If no key is changed, and no key is deleted and inserted again, no two rows can have shared one.
    known = (
        "case when (select bool_and(v.is_told) from event v) and ("
        "exists (select from event v where v.left_pk is not null)"
        " or exists (select from event v group by v.record_pk having min(v.seq) filter (where v.action = 'insert')"
        " < max(v.seq) filter (where v.action = 'delete'))"
        ") then e.{} else e.{} end"
    )
    return {
        "contents": contents,
        "left": sql.SQL(known).format(sql.SQL("left_content"), sql.SQL("left_pk")),
        "known_by": sql.SQL(known).format(sql.SQL("content"), sql.SQL("record_pk")),
    }


# The functions below do the same as `pipeline.followers.applying.rendering`, for many rows: their SQL writes each value
# as COPY text. `e` is the last event of a row, `l` the outcome for the row, and `m` its values merged from several
# events if the last one lacks some.


def new_row(table: FollowedTable) -> sql.Composable:
    """Return the values of a row that the event `e` adds."""
    return sql.SQL(", ").join(_text(column) for column in table.columns if column.written)


def folded(table: FollowedTable, events_table: EventsTable) -> sql.Composable:
    """Return the columns of `relay_folded.sql` after the missing columns: the old key and the new values."""
    columns = [*(_old(table, column, events_table) for column in table.key)]
    columns += [_new(column) for column in table.columns if column.written]
    return sql.Composed([sql.SQL(", {}").format(column) for column in columns])


def _new(column: FollowedColumn) -> sql.Composable:
    return sql.SQL(
        "case when l.last_kind = 'delete' then null when m.seq is null then {} else m.row ->> {} end"
    ).format(_text(column), column.name)


def _old(table: FollowedTable, column: FollowedColumn, events_table: EventsTable) -> sql.Composable:
    """Return a value of the old key: of the last event, or of the first event if the key was changed."""
    moved = rendering.changes_key(table)
    parts: dict[str, sql.Composable] = {"name": rendering.name(column.source), "moved": moved}
    now, before = sql.SQL("e.record ->> {name}"), sql.SQL("e.changes ->> {name}")
    if column.source.document:
        now = sql.SQL("coalesce(e.exact ->> {name}, (e.record -> {name})::text)")
        before = sql.SQL("(e.changes -> {name})::text")
    parts |= {"now": now.format(**parts), "before": before.format(**parts), "events": events_table.identifier}
    return sql.SQL(
        "case when l.is_new then null when l.moved then ("
        "select case when {moved} and e.changes ? {name} then {before} else {now} end"
        " from {events} e where e.seq = l.seq"
        ") else {now} end"
    ).format(**parts)


def _text(column: FollowedColumn) -> sql.Composable:
    """Return the value that the event `e` gives the column, as text."""
    if column.as_text:
        return rendering.value(column)
    return sql.SQL("e.record ->> {}").format(rendering.name(column.source))
