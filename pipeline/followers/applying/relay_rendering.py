"""SQL for the pipeline database that writes what events say of a row as columns of COPY text.

As `pipeline.followers.applying.rendering`, for many rows: the text of each value, as the type's input function takes
it. In its statements `e` is the last event of a row, `l` what became of the row, `m` its values put together from
several events where the last one lacks some.
"""

from __future__ import annotations

from psycopg import sql

from pipeline.followers.applying import rendering
from pipeline.followers.applying.followed_tables import FollowedColumn, FollowedTable
from pipeline.log.table import EventsTable


def new_row(table: FollowedTable) -> sql.Composable:
    """The values of a row that the event `e` adds."""
    return sql.SQL(", ").join(_text(column) for column in table.columns if column.written)


def folded(table: FollowedTable, events_table: EventsTable) -> sql.Composable:
    """What comes after the operation, the seq, whether it is strict, and what is left out: the old key, and values."""
    columns = [*(_old(table, column, events_table) for column in table.key)]
    columns += [_new(column) for column in table.columns if column.written]
    return sql.Composed([sql.SQL(", {}").format(column) for column in columns])


def _new(column: FollowedColumn) -> sql.Composable:
    return sql.SQL(
        "case when l.last_kind = 'delete' then null when m.seq is null then {} else m.row ->> {} end"
    ).format(_text(column), column.name)


def _old(table: FollowedTable, column: FollowedColumn, events_table: EventsTable) -> sql.Composable:
    """A key that did not change is that of the last event; one that did is asked of the first."""
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
    """What the event `e` gives the column."""
    if column.as_text:
        return rendering.value(column)
    return sql.SQL("e.record ->> {}").format(rendering.name(column.source))
