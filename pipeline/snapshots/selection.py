"""The query for the rows of a range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg import sql

from pipeline.capture.schema_history.versions import TableVersion
from pipeline.log.staging.ranges import Taken
from pipeline.postgres import queries
from pipeline.postgres.key_comparison import KeyComparison


def of_range(
    taken: Taken, name: str, version: TableVersion, conditions: Iterable[sql.Composable | None]
) -> sql.Composable:
    """The range's rows for which all conditions hold, with the columns in the order of the version."""
    columns = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(each.name)) for each in version.columns)
    within: list[sql.Composable] = []
    source = sql.SQL("only {} as t").format(queries.trusted(name))
    if taken.from_block:
        within.append(sql.SQL("t.ctid operator(pg_catalog.>=) {}::pg_catalog.tid").format(f"({taken.from_block},0)"))
    if taken.until_block == 0:  # nothing, also for a role that may not read places
        within.append(sql.SQL("false"))
    elif taken.until_block is not None:
        within.append(sql.SQL("t.ctid operator(pg_catalog.<) {}::pg_catalog.tid").format(f"({taken.until_block},0)"))
    within += [sql.SQL("({})").format(condition) for condition in conditions if condition is not None]
    where = sql.SQL(" where ") + sql.SQL(" and ").join(within) if within else sql.SQL("")
    return sql.SQL("select {} from {}{}").format(columns, source, where)


def as_printed(key: KeyComparison, keys: Sequence[Sequence[str]]) -> sql.Composable:
    """The keys as the source prints them: the log may have them in another form, as numbers of JSON."""
    return sql.SQL("select {} from {}").format(sql.SQL(", ").join(key.listed_values()), key.listed(keys))
