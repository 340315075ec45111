"""Builds SQL that turns events of the log into JSON, from which the follower writes rows.

The SQL runs in the pipeline database. Its result for an event is an *element*: one JSON object with the row's values
under the follower's column names. Other names in it begin with the table's mark: the seq, the old key, and the list of
missing values. Every value keeps the text that the source printed. This server never parses it, so cannot change it.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from pipeline.followers.applying.followed_tables import FollowedColumn, FollowedTable
from pipeline.followers.applying.table_versions import NamedColumn
from pipeline.postgres.queries import statement

_COMMA = sql.SQL(", ")
_PIECE = 40
"""The most columns in one call of `jsonb_build_object`: Postgres allows 100 arguments, two for each column."""


def name(column: NamedColumn) -> sql.Composable:
    """Return SQL for the column's name at the time of the event `e`; null if the column did not exist then."""
    found: sql.Composable = sql.SQL("{}::text").format(sql.Literal(column.names[0][1]))
    for place, called in column.names[1:]:
        found = sql.SQL(
            "case when (e.source_epoch, coalesce(e.commit_lsn, 0), coalesce(e.commit_idx, 0)) >= ({}, {}, {})"
            " then {} else {} end"
        ).format(place.epoch, place.lsn, place.idx, sql.Literal(called), found)
    return found


def names(columns: Sequence[FollowedColumn]) -> sql.Composable:
    """Return SQL for an array with the names of these columns at the time of the event `e`."""
    return sql.SQL("array[{}]::text[]").format(_COMMA.join(name(column.source) for column in columns))


def columns(table: FollowedTable) -> sql.Composable:
    """Return SQL for an array with the follower's names of all columns of the table."""
    return sql.SQL("{}::text[]").format(sql.Literal([column.name for column in table.columns]))


def row(table: FollowedTable) -> sql.Composable:
    """Return SQL for the row of the event `e` under the follower's column names, without missing columns."""
    special = [column for column in table.columns if column.as_text or len(column.source.names) > 1]
    if not special:
        return sql.SQL("e.record")
    pieces: list[sql.Composable] = [sql.SQL("(e.record - {})").format(names(special))]
    for at in range(0, len(special), _PIECE):
        built = (
            sql.SQL("{}::text, {}").format(sql.Literal(column.name), value(column))
            for column in special[at : at + _PIECE]
        )
        pieces.append(sql.SQL("jsonb_build_object({})").format(_COMMA.join(built)))
    whole = sql.SQL(" || ").join(pieces)
    return sql.SQL(
        "case when e.record ?& {names} then {whole} else ({whole}) - array(select m.called_there"
        " from unnest({names}, {here}::text[]) m (called, called_there) where not e.record ? m.called) end"
    ).format(names=names(special), whole=whole, here=sql.Literal([column.name for column in special]))


def value(column: FollowedColumn) -> sql.Composable:
    called = name(column.source)
    if column.source.document:
        return sql.SQL("coalesce(e.exact ->> {0}, nullif(e.record -> {0}, 'null')::text)").format(called)
    return sql.SQL("e.record ->> {}").format(called) if column.as_text else sql.SQL("e.record -> {}").format(called)


def element(table: FollowedTable, old: sql.Composable, *, seq: str, lenient: str) -> sql.Composable:
    """Return SQL for an element.

    `r.row`: the row, null after a delete. `missing.columns`: the names of its missing columns.
    """
    marked = [
        sql.SQL("'{{\"' || {0} || 'seq\":' || {1} || ',\"' || {0} || 'strict\":' || (not {2})::text").format(
            sql.Literal(table.mark), sql.SQL(seq), sql.SQL(lenient)
        ),
        sql.SQL("coalesce(',\"' || {} || 'left\":' || to_json(missing.columns)::text, '')").format(
            sql.Literal(table.mark)
        ),
        old,
        sql.SQL("case when coalesce(r.row, '{}') = '{}' then '}' else ',' || substr(r.row::text, 2) end"),
    ]
    return sql.SQL(" || ").join(marked)


def old_key(table: FollowedTable, event: str, moved: sql.Composable) -> sql.Composable:
    """Return SQL for the part of an element that has the row's key before the event.

    `event`: the alias of the event. `moved`: SQL that is true if the event changed the key.
    """
    parts = []
    for index, column in enumerate(table.key):
        called = _called_by(column.source, event)
        values = {"e": sql.SQL(event), "name": called, "moved": moved}
        if column.as_text:
            text = (
                "case when {moved} then null else {e}.exact ->> {name} end, ({e}.record || old.changes -> {name})::text"
            )
            value = sql.SQL(f"to_json(coalesce({text}))::text").format(**values)
        else:
            value = sql.SQL("coalesce((({e}.record || old.changes) -> {name})::text, 'null')").format(**values)
        marked = sql.SQL("',\"' || {} || 'old{}\":' || {}").format(sql.Literal(table.mark), index, value)
        parts.append(marked)
    if not parts:
        return sql.SQL("''")
    changes = sql.SQL("case when {} then {}.changes else '{{}}' end").format(moved, sql.SQL(event))
    return sql.SQL("(select {} from (select {} as changes) old)").format(sql.SQL(" || ").join(parts), changes)


def _called_by(column: NamedColumn, event: str) -> sql.Composable:
    """Return SQL for the column's name at the time of the event with the alias `event`; see `name`."""
    return (
        sql.SQL("(select {} from (select {event}.source_epoch, {event}.commit_lsn, {event}.commit_idx) e)").format(
            name(column), event=sql.SQL(event)
        )
        if len(column.names) > 1
        else name(column)
    )


def old_row(table: FollowedTable) -> sql.Composable:
    """Return SQL for the part of an element with all values of the row before the event `e`; for tables without a key.

    If an update replaces a json value, the log has the old value only as jsonb, or as text if jsonb does not accept it.
    So the element has it as `old` text and as `like` jsonb. Rows that differ only in white space of their json are the
    same to the follower.
    """
    parts: list[sql.Composable] = []
    for index, column in enumerate(table.columns):
        values = {"mark": sql.Literal(table.mark), "index": index, "name": name(column.source)}
        if column.as_text:
            changed = sql.SQL("coalesce(e.changes ? {name}, false)").format(**values)
            values |= {"changed": changed, "kept": value(column)}
            parts.append(
                sql.SQL(
                    "',\"' || {mark} || 'old{index}\":' || coalesce(to_json("
                    "case when {changed} then e.changes ->> {name} else ({kept})::text end)::text, 'null')"
                    " || ',\"' || {mark} || 'like{index}\":' || coalesce(to_json("
                    "case when {changed} then (e.changes -> {name})::text end)::text, 'null')"
                ).format(**values)
            )
        else:
            parts.append(
                sql.SQL("',\"' || {mark} || 'old{index}\":' || coalesce((old.row -> {name})::text, 'null')").format(
                    **values
                )
            )
    if not parts:
        return sql.SQL("''")
    # An operator between all columns of a wide table would make an expression that is too deep for Postgres.
    return sql.SQL(
        "(select array_to_string(array[{}], '') from (select e.record || coalesce(e.changes, '{{}}') as row) old)"
    ).format(_COMMA.join(parts))


def lenient(table: FollowedTable) -> sql.Composable:
    """Return SQL that is true if it is unknown whether the follower has the row that the event `e` writes."""
    return sql.SQL(
        "(e.action = 'read' or coalesce(e.metadata ?| array['recovered', 'retried'], false) or e.seq <= {})"
    ).format(table.wanted.filled_upto)


def counts(table: FollowedTable) -> sql.Composable:
    """Return SQL that is true if the follower must apply the event `e`.

    It applies a read row of a table without a key only while the table is filled.
    """
    read = sql.SQL("true") if table.key else sql.SQL("e.seq <= {}").format(table.wanted.filled_upto)
    return sql.SQL(
        "(e.action in ('insert', 'update', 'delete') or e.action = 'read' and {})"
        " and not coalesce(e.metadata ? 'outdated', false) and not {}"
    ).format(read, in_copy(table))


def in_copy(table: FollowedTable) -> sql.Composable:
    """Return SQL that is true if the table's copy contains the event `e`."""
    return sql.SQL("false") if table.wanted.copy is None else table.wanted.copy.contains


def changes_key(table: FollowedTable) -> sql.Composable:
    """Return SQL that is true if the update `e` gave the row another key."""
    return sql.SQL("coalesce(e.changes ?| {}, false)").format(names(table.key)) if table.key else sql.SQL("false")


def left_pk(table: FollowedTable) -> sql.Composable:
    """Return SQL for the row's record_pk before the update `e`; null if the update did not change the key."""
    if not table.key:
        return sql.SQL("null::text")
    described = (
        sql.SQL("jsonb_build_object('name', {}, 'base_type_oid', {})").format(
            name(column.source), sql.Literal(column.source.base_type_oid)
        )
        for column in table.key
    )
    key = sql.SQL(statement("log", "key_of_record")).format(
        names=names(table.key),
        record=sql.SQL("(e.record || e.changes)"),
        columns=sql.SQL("jsonb_build_array({})").format(_COMMA.join(described)),
    )
    return sql.SQL("case when e.action = 'update' and {} then (select k.record_pk from ({}) k) end").format(
        changes_key(table), key
    )
