"""What only the source knows of a condition: whether its functions, types and columns are harmless there."""

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
"""The columns of a table, in their order; no row when it was dropped."""


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
    """That reading rows of the table, by its oid, with this condition runs nothing but functions of Postgres itself
    that change nothing, wait for nothing and look at nothing but the row.

    To be called in each transaction that reads with the condition: catalogs may have changed since the last time. It
    must have search_path = '', else operators of users could be meant (ValueError). Raises ConditionRefusedError.
    """
    if queries.value(source, "select pg_catalog.current_schemas(false) <> '{}'"):
        raise ValueError("a condition is for sessions whose search_path is empty")
    _require_functions(source, condition)
    _require_types(source, condition)
    _require_columns(source, condition, table)


def _require_functions(source: Connection, condition: RowCondition) -> None:
    query = queries.statement("snapshots.conditions", "harmful_functions")
    for function in queries.rows(source, _Function, query, {"functions": sorted(condition.functions)}):
        raise ConditionRefusedError(
            f"--where: {shown(function.name)}() {function.reason}: only immutable and stable functions of Postgres are,"
            " of those that look at nothing but their arguments; write it without"
        )


def _require_types(source: Connection, condition: RowCondition) -> None:
    query = queries.statement("snapshots.conditions", "harmful_types")
    for kind in queries.rows(source, _Type, query, {"types": sorted(condition.types)}):
        raise ConditionRefusedError(
            f"--where: a cast to {shown(kind.name)} is not allowed: only types of Postgres itself for values are;"
            " compare with a string, which takes the column's type"
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
