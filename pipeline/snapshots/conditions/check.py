"""Check at the source that the functions, types and columns of a condition are harmless."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from pipeline.errors import ConditionRefusedError
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.snapshots.conditions.condition import RowCondition, parse
from pipeline.snapshots.conditions.lexer import shown

_COLUMNS_OF_TABLE = """\
select a.attname::text from pg_catalog.pg_attribute a
where a.attrelid = %(oid)s::oid and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""
"""The columns of a table, in their order; no row if the table was dropped."""


@dataclass(frozen=True)
class _Function:
    name: str
    reason: str


@dataclass(frozen=True)
class _Type:
    name: str


@dataclass(frozen=True)
class _Column:
    name: str
    type: str


def trusted(source: Connection, condition: str, table: int) -> sql.Composable:
    """Return the SQL behind `where` for a user's condition, after checking in this transaction that it is harmless.

    `table`: its oid. Raises ConditionRefusedError.
    """
    query = _COLUMNS_OF_TABLE
    columns = [name for (name,) in source.execute(query, {"oid": table}).fetchall()]
    parsed = parse(condition, columns)
    require_harmless(source, parsed, table)
    return parsed.sql()


def require_harmless(source: Connection, condition: RowCondition, table: int) -> None:
    """Raise ConditionRefusedError unless the condition only calls harmless functions of Postgres for rows of the table.

    Such a function changes nothing, waits for nothing and reads nothing but its arguments. `table`: its oid. Call this
    in each transaction that reads with the condition, because catalogs may have changed. The session's search_path must
    be empty, because otherwise the condition could name operators of users (ValueError).
    """
    if queries.value(source, "select pg_catalog.current_schemas(false) <> '{}'"):
        raise ValueError("a condition may only be used in a session whose search_path is empty")
    _require_functions(source, condition)
    _require_types(source, condition)
    _require_columns(source, condition, table)


def _require_functions(source: Connection, condition: RowCondition) -> None:
    query = queries.statement("snapshots.conditions", "harmful_functions")
    for function in queries.rows(source, _Function, query, {"functions": sorted(condition.functions)}):
        raise ConditionRefusedError(
            f"--where: {shown(function.name)}() {function.reason}: write the condition without this function. Allowed"
            " are immutable and stable functions of Postgres that read nothing but their arguments"
        )


def _require_types(source: Connection, condition: RowCondition) -> None:
    query = queries.statement("snapshots.conditions", "harmful_types")
    for kind in queries.rows(source, _Type, query, {"types": sorted(condition.types)}):
        raise ConditionRefusedError(
            f"--where: a cast to {shown(kind.name)} is not allowed, because the type is not one of Postgres'"
            " own types of values; compare with a string, which takes the column's type"
        )


def _require_columns(source: Connection, condition: RowCondition, table: int) -> None:
    query = queries.statement("snapshots.conditions", "harmful_columns")
    values = {"columns": sorted(condition.columns), "table": table}
    for found in queries.rows(source, _Column, query, values):
        if not found.type:
            raise ConditionRefusedError(f"condition: the table has no column {shown(found.name)}: correct the name")
        raise ConditionRefusedError(
            f"condition: {shown(found.name)} is not allowed, as its type {shown(found.type)} may run functions of its"
            " owner: use columns of other types"
        )
