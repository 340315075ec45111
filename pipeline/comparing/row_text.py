"""Build SQL that writes a row as text, at the source from its columns and in the log from its event.

Equal rows have equal texts. The text is the output of record_out for the texts of all columns. Both sessions print
values by the same settings (`pipeline.wal.encoding.SESSION_SETTINGS`). The log has the text of a value, or jsonb that
prints as this text (docs/reference/types.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from pipeline.capture.schema_history.versions import PublishedColumn
from pipeline.wal.encoding import BOOL, FLOAT4, FLOAT8, JSON, JSONB

_PRINTED_AS = {FLOAT4: ("float4", "1e-45", "3.4028235e38"), FLOAT8: ("float8", "4.9e-324", "1.7976931348623157e308")}
"""Types that jsonb writes without an exponent, by oid: the name, and the smallest and largest values except zero."""
NEVER = 2**63 - 1
"""The LSN from which on the log has a column, for a column that no event has yet."""
_COMMA = sql.SQL(", ")


def checksum(row: sql.Composable) -> sql.Composable:
    """Return SQL for a checksum of 64 bits of a row's text.

    Equal texts have equal checksums on every server: hash_bytes_extended is the same in all versions.
    """
    return sql.SQL('pg_catalog.hashtextextended(({})::text collate "C", 0)').format(row)


def source_row(columns: Sequence[PublishedColumn], alias: str = "t") -> sql.Composable:
    """Return SQL for the columns of a row of the source, as one value."""
    return _row([sql.Identifier(alias, column.name) for column in columns])


def source_texts(columns: Sequence[PublishedColumn], alias: str = "t") -> sql.Composable:
    """Return SQL for an array of the texts of the source's columns."""
    return texts([sql.Identifier(alias, column.name) for column in columns])


def texts(values: Sequence[sql.Composable]) -> sql.Composable:
    """Return SQL for an array of the texts of values as their types print them: a cast to text may print others.

    num_nulls finds null values, because a composite with some null fields is neither null nor not null for SQL.
    """
    there = sql.SQL("case when pg_catalog.num_nulls({0}) = 0 then pg_catalog.concat({0}) end")
    printed = (there.format(value) for value in values)
    return sql.SQL("array[{}]::text[]").format(_COMMA.join(printed))


def log_checksum(columns: Sequence[PublishedColumn], epoch: int) -> sql.Composable:
    """Return SQL for the checksum of the row in the event `e`; null if the event lacks values of the row.

    In most events, all columns already had their current names, so no column has to be checked alone.
    """
    named = [_COMMA.join(map(sql.Literal, _last_place(columns))), sql.Literal([column.name for column in columns])]
    return sql.SQL(
        "case when e.unchanged_columns is not null or coalesce(e.metadata ? 'parked', false) then null"
        " when e.source_epoch = {epoch} and (e.commit_lsn, e.commit_idx) >= ({since}) and e.record ?& {names}::text[]"
        " then {plain} when {known} then {checksum} end"
    ).format(
        epoch=sql.Literal(epoch),
        since=named[0],
        names=named[1],
        plain=checksum(_row([_text(column, sql.Literal(column.name)) for column in columns])),
        known=sql.SQL(" and ").join(
            sql.SQL("({} or {})").format(has_value(column, epoch), is_older(column, epoch)) for column in columns
        ),
        checksum=checksum(_row([log_text(column, epoch) for column in columns])),
    )


def _last_place(columns: Sequence[PublishedColumn]) -> tuple[int, int]:
    """Return the commit_lsn and commit_idx from which on every column has its current name."""
    return max(((name.lsn, name.idx) for column in columns for name in column.names[-1:]), default=(0, 0))


def log_texts(columns: Sequence[PublishedColumn], epoch: int) -> sql.Composable:
    """Return SQL for an array of the columns' texts in the event `e`."""
    return sql.SQL("array[{}]::text[]").format(_COMMA.join(log_text(column, epoch) for column in columns))


def log_text(column: PublishedColumn, epoch: int) -> sql.Composable:
    """Return SQL for the text of a value in the event `e`; null if the event has none."""
    name = _name(column, epoch)
    # An earlier epoch may have another column of that name, whose type is not known; `exact` has the text of json.
    text = sql.SQL("case when e.exact ? {0} then e.exact ->> {0} else {1} end").format(name, any_text(column, name))
    if not column.names:
        return text
    return sql.SQL("case when {} then null else {} end").format(_precedes(column, epoch), text)


def has_value(column: PublishedColumn, epoch: int) -> sql.Composable:
    """Return SQL that is true if the event `e` has a value of the column, even null."""
    return sql.SQL("(e.record ? {})").format(_name(column, epoch))


def is_older(column: PublishedColumn, epoch: int) -> sql.Composable:
    """Return SQL that is true if the event `e` is older than the column or its values, so its value does not count."""
    if not column.names:
        return sql.SQL("(not {})").format(has_value(column, epoch))
    return sql.SQL("(e.source_epoch < {} and not {} or {})").format(
        sql.Literal(epoch), has_value(column, epoch), _precedes(column, epoch)
    )


def _precedes(column: PublishedColumn, epoch: int) -> sql.Composable:
    """Return SQL that is true if the event `e` comes before the first name of the column in this epoch."""
    first = column.names[0]
    if column.names[-1].lsn == NEVER:
        return sql.SQL("true")
    return sql.SQL("(e.source_epoch = {} and (e.commit_lsn, e.commit_idx) < ({}, {}))").format(
        sql.Literal(epoch), sql.Literal(first.lsn), sql.Literal(first.idx)
    )


def _name(column: PublishedColumn, epoch: int) -> sql.Composable:
    """Return SQL for the name under which the event `e` has the column, which may have been renamed since."""
    found: sql.Composable = sql.Literal(column.names[0].name if column.names else column.name)
    for later in column.names[1:]:
        found = since(epoch, later.lsn, later.idx, sql.Literal(later.name), found)
    return found


def since(epoch: int, lsn: int, idx: int, then: sql.Composable, before: sql.Composable) -> sql.Composable:
    """Return SQL with the value `then` if the event `e` is at or after a position, else `before`."""
    return sql.SQL(
        "case when (e.source_epoch, coalesce(e.commit_lsn, 0), coalesce(e.commit_idx, 0)) >= ({}, {}, {})"
        " then {} else {} end"
    ).format(sql.Literal(epoch), sql.Literal(lsn), sql.Literal(idx), then, before)


def _text(column: PublishedColumn, name: sql.Composable) -> sql.Composable:
    """Return SQL for the text of a value of the column's type, under this name in the event `e`."""
    text = sql.SQL("e.record ->> {}").format(name)
    if column.base_type_oid in (JSON, JSONB):  # whose null as a value is in `exact`
        return sql.SQL(
            "case when e.exact ? {0} then e.exact ->> {0} else nullif((e.record -> {0})::text, 'null') end"
        ).format(name)
    if column.base_type_oid == BOOL:
        return sql.SQL("left({}, 1)").format(text)
    if column.base_type_oid in _PRINTED_AS:
        return sql.SQL("({})::{}::text").format(text, sql.SQL(_PRINTED_AS[column.base_type_oid][0]))
    return text


def any_text(column: PublishedColumn, name: sql.Composable) -> sql.Composable:
    """Return SQL for the text of any value: a value that the column's type does not allow is printed unchanged."""
    if column.base_type_oid == BOOL:
        fits = sql.SQL("jsonb_typeof(e.record -> {}) = 'boolean'").format(name)
    elif column.base_type_oid in _PRINTED_AS:
        least, most = map(sql.SQL, _PRINTED_AS[column.base_type_oid][1:])
        fits = sql.SQL(
            "case when jsonb_typeof(e.record -> {0}) = 'number' then (e.record ->> {0})::numeric = 0"
            " or abs((e.record ->> {0})::numeric) between {1} and {2} end"
        ).format(name, least, most)
    else:
        return _text(column, name)
    return sql.SQL("case when {} then {} else e.record ->> {} end").format(fits, _text(column, name), name)


def _row(values: Sequence[sql.Composable]) -> sql.Composable:
    return sql.SQL("row({})").format(_COMMA.join(values))
