"""SQL for the pipeline database that renders what events say of a row as JSON for the follower.

An *element* is one JSON object. It has the row's values under the follower's names. Under names that begin with the
table's mark it has the seq, the old key, and the names of missing values. Values are carried as the log has them, which
is how the source printed them: this server never parses them, so it cannot change them.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from pipeline.followers.applying.followed_tables import FollowedColumn, FollowedTable
from pipeline.followers.applying.table_versions import NamedColumn
from pipeline.postgres.queries import statement

_COMMA = sql.SQL(", ")
_PIECE = 40
"""The columns in one call: Postgres allows at most 100 arguments."""


def name(column: NamedColumn) -> sql.Composable:
    """Return SQL for the name of the column in the event `e`; null if it had none yet, so that its value is null."""
    found: sql.Composable = sql.SQL("{}::text").format(sql.Literal(column.names[0][1]))
    for place, called in column.names[1:]:
        found = sql.SQL(
            "case when (e.source_epoch, coalesce(e.commit_lsn, 0), coalesce(e.commit_idx, 0)) >= ({}, {}, {})"
            " then {} else {} end"
        ).format(place.epoch, place.lsn, place.idx, sql.Literal(called), found)
    return found


def names(columns: Sequence[FollowedColumn]) -> sql.Composable:
    """Return SQL for an array of the names of these columns in the event `e`."""
    return sql.SQL("array[{}]::text[]").format(_COMMA.join(name(column.source) for column in columns))


def columns(table: FollowedTable) -> sql.Composable:
    """Return SQL for an array of the follower's column names."""
    return sql.SQL("{}::text[]").format(sql.Literal([column.name for column in table.columns]))


def row(table: FollowedTable) -> sql.Composable:
    """Return SQL for the record of the event `e` under the follower's names, without missing columns."""
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
    """Return SQL for an element. `r.row` is the row, null after a delete; `missing.columns` are its missing columns."""
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
    """Return SQL for the key before the event of this alias, as a part of an element; `moved`: the key changed."""
    parts = []
    for place, column in enumerate(table.key):
        called = _called_by(column.source, event)
        values = {"e": sql.SQL(event), "name": called, "moved": moved}
        if column.as_text:
            text = (
                "case when {moved} then null else {e}.exact ->> {name} end, ({e}.record || old.changes -> {name})::text"
            )
            value = sql.SQL(f"to_json(coalesce({text}))::text").format(**values)
        else:
            value = sql.SQL("coalesce((({e}.record || old.changes) -> {name})::text, 'null')").format(**values)
        marked = sql.SQL("',\"' || {} || 'old{}\":' || {}").format(sql.Literal(table.mark), place, value)
        parts.append(marked)
    if not parts:
        return sql.SQL("''")
    changes = sql.SQL("case when {} then {}.changes else '{{}}' end").format(moved, sql.SQL(event))
    return sql.SQL("(select {} from (select {} as changes) old)").format(sql.SQL(" || ").join(parts), changes)


def _called_by(column: NamedColumn, event: str) -> sql.Composable:
    """Return the same SQL as `name`, for an event with another alias."""
    return (
        sql.SQL("(select {} from (select {event}.source_epoch, {event}.commit_lsn, {event}.commit_idx) e)").format(
            name(column), event=sql.SQL(event)
        )
        if len(column.names) > 1
        else name(column)
    )


def old_row(table: FollowedTable) -> sql.Composable:
    """Return SQL for all values before the event `e`, as a part of an element, for a table without a key.

    The log has a json value that an update replaces only as jsonb, or as text if jsonb does not accept it. So the
    element has both forms, and rows that differ only in the spaces of json cannot be told apart.
    """
    parts: list[sql.Composable] = []
    for place, column in enumerate(table.columns):
        values = {"mark": sql.Literal(table.mark), "place": place, "name": name(column.source)}
        if column.as_text:
            changed = sql.SQL("coalesce(e.changes ? {name}, false)").format(**values)
            values |= {"changed": changed, "kept": value(column)}
            parts.append(
                sql.SQL(
                    "',\"' || {mark} || 'old{place}\":' || coalesce(to_json("
                    "case when {changed} then e.changes ->> {name} else ({kept})::text end)::text, 'null')"
                    " || ',\"' || {mark} || 'like{place}\":' || coalesce(to_json("
                    "case when {changed} then (e.changes -> {name})::text end)::text, 'null')"
                ).format(**values)
            )
        else:
            parts.append(
                sql.SQL("',\"' || {mark} || 'old{place}\":' || coalesce((old.row -> {name})::text, 'null')").format(
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
    """Return SQL that is true if the event `e` tells the row's values, but not if the row existed before."""
    return sql.SQL(
        "(e.action = 'read' or coalesce(e.metadata ?| array['recovered', 'retried'], false) or e.seq <= {})"
    ).format(table.wanted.filled_upto)


def counts(table: FollowedTable) -> sql.Composable:
    """Return SQL that is true if the event `e` counts; a read row without a key counts only while a table is filled."""
    read = sql.SQL("true") if table.key else sql.SQL("e.seq <= {}").format(table.wanted.filled_upto)
    return sql.SQL(
        "(e.action in ('insert', 'update', 'delete') or e.action = 'read' and {})"
        " and not coalesce(e.metadata ? 'outdated', false) and not {}"
    ).format(read, in_copy(table))


def in_copy(table: FollowedTable) -> sql.Composable:
    """Return SQL that is true if the follower's copy of the table contains the event `e`."""
    return sql.SQL("false") if table.wanted.copied is None else table.wanted.copied.contains


def changes_key(table: FollowedTable) -> sql.Composable:
    """Return SQL that is true if the update `e` gave the row another key."""
    return sql.SQL("coalesce(e.changes ?| {}, false)").format(names(table.key)) if table.key else sql.SQL("false")


def left_pk(table: FollowedTable) -> sql.Composable:
    """Return SQL for the record_pk that the row had before the update `e`; null if the key did not change."""
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
