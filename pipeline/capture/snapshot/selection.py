"""The query for the rows of a range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg import sql

from pipeline.capture.schema_history.versions import TableVersion
from pipeline.staging.ranges import Taken


def of_range(
    taken: Taken, name: str, version: TableVersion, conditions: Iterable[sql.Composable | None]
) -> sql.Composable:
    """The range's rows for which all conditions hold, with the columns in the order of the version."""
    columns = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(each.name)) for each in version.columns)
    within: list[sql.Composable] = []
    source = sql.SQL("only {} as t").format(trusted(name))
    if taken.keys is not None:
        within.append(_has_key(version, taken.keys))
    else:
        if taken.from_block:
            within.append(sql.SQL("t.ctid >= {}::pg_catalog.tid").format(f"({taken.from_block},0)"))
        if taken.until_block is not None:
            within.append(sql.SQL("t.ctid < {}::pg_catalog.tid").format(f"({taken.until_block},0)"))
    within += [sql.SQL("({})").format(condition) for condition in conditions if condition is not None]
    where = sql.SQL(" where ") + sql.SQL(" and ").join(within) if within else sql.SQL("")
    return sql.SQL("select {} from {}{}").format(columns, source, where)


def as_printed(version: TableVersion, keys: Sequence[Sequence[str]]) -> sql.Composable:
    """The keys once more, as the source prints them: the log may have them in another form, as numbers of JSON."""
    values, listed = _keys(version, keys)
    return sql.SQL("select {} from {}").format(values, listed)


def _has_key(version: TableVersion, keys: Sequence[Sequence[str]]) -> sql.Composable:
    """Whether a row has one of these keys."""
    values, listed = _keys(version, keys)
    return sql.SQL("({}) in (select {} from {})").format(
        sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(column)) for column in version.key_columns),
        values,
        listed,
    )


def _keys(version: TableVersion, keys: Sequence[Sequence[str]]) -> tuple[sql.Composable, sql.Composable]:
    """Their values, typed, and what to select these from."""
    types = {column.name: column.cast for column in version.columns}
    lists = [sql.Literal([key[place] for key in keys]) for place in range(len(version.key_columns))]
    names = [sql.Identifier(f"key_{place}") for place in range(len(lists))]
    values = sql.SQL(", ").join(
        sql.SQL("k.{}::{}").format(key, trusted(types[column]))
        for column, key in zip(version.key_columns, names, strict=True)
    )
    listed = sql.SQL("unnest({}) as k({})").format(
        sql.SQL(", ").join(sql.SQL("{}::text[]").format(each) for each in lists), sql.SQL(", ").join(names)
    )
    return values, listed


def trusted(text: str) -> sql.SQL:
    """What the source's catalog has printed: names and expressions, quoted by it."""
    return sql.SQL(text)
