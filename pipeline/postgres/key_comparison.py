"""Comparing the values of a table's key without running code of the owner of a table or type.

Casts to a domain run its checks, casts from or to a type run the functions that its owner has declared for them, and an
operator without a schema may be one that an owner has created. So a value is compared as the base type of its domain,
only a literal is cast to a type outside of pg_catalog, and each operator is written with its schema. Keys of types for
which that is impossible are refused. The types were tried on Postgres 15, 16 and 18.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import psycopg
from psycopg import sql

from pipeline.errors import NotComparableError
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

Operator = Literal["<", "<=", "=", ">=", ">"]
_OPERATORS: tuple[Operator, ...] = ("<", "<=", "=", ">=", ">")
_COMMA, _AND = sql.SQL(", "), sql.SQL(" and ")


@dataclass(frozen=True)
class KeyColumn:
    """A column of a key.

    `type`: the type as which its values are compared, with its schema; `declared`: the type of the column. `form`: how
    a value becomes one of `type`; `refused`: why it cannot. `operators`: the operators with their schemas, unless
    `standard`; `standard`: True if those of pg_catalog are used.
    """

    name: str
    type: str
    declared: str
    form: Literal["itself", "domain", "text"]
    refused: str
    standard: bool
    operators: list[str] | None

    @property
    def refusal(self) -> str:
        """The reason why values cannot be compared without running code of an owner; empty if they can."""
        if self.refused or self.standard or len(self.operators or ()) == len(_OPERATORS):
            return self.refused
        return "has no operators by which its values are sorted"

    def operator(self, name: Operator) -> str:
        """Return the operator with its schema, as SQL."""
        found = None if self.standard else self.operators
        return f"operator({found[_OPERATORS.index(name)] if found else f'pg_catalog.{name}'})"

    def value(self, alias: str) -> sql.Composable:
        """Return SQL for the column of the row `alias`, as a value of `type`."""
        column = sql.Identifier(alias, self.name)
        if self.form == "itself":
            return column
        # An owner may declare a cast from an array of a domain, but none from a domain, and none from text.
        given = sql.SQL("pg_catalog.concat({})").format(column) if self.form == "text" else column
        return sql.SQL("{}::{}").format(given, sql.SQL(self.type))

    def literal(self, text: str) -> sql.Composable:
        """Return SQL for this text as a value of `type`."""
        return sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(self.type))


@dataclass(frozen=True)
class KeyComparison:
    """The SQL that compares keys of one table at one server. Keys are texts, in the order of the columns.

    The SQL contains operators such as `%`, so execute a statement that contains it without parameters.
    """

    columns: tuple[KeyColumn, ...]

    def values(self, alias: str = "t") -> sql.Composable:
        """Return SQL for the key of the row `alias`, as a list of values that can be compared."""
        return _COMMA.join(column.value(alias) for column in self.columns)

    def bounded(self, operator: Literal["<", "<=", ">=", ">"], key: Sequence[str], alias: str = "t") -> sql.Composable:
        """Return SQL that is true if the key of this row comes before or after another one."""
        values = [column.literal(text) for column, text in zip(self.columns, key, strict=True)]
        if len({column.operator(operator) for column in self.columns}) == 1:
            written = sql.SQL(self.columns[0].operator(operator))
            return sql.SQL("row({}) {} row({})").format(self.values(alias), written, _COMMA.join(values))
        return self._by_column(operator, values, alias)

    def _by_column(self, operator: Operator, values: Sequence[sql.Composable], alias: str) -> sql.Composable:
        """Return the comparison of two rows column by column: `row(…) < row(…)` allows operators of one schema only."""
        strict: Operator = "<" if operator.startswith("<") else ">"
        found: sql.Composable | None = None
        for column, value in reversed(list(zip(self.columns, values, strict=True))):
            here = column.value(alias)
            if found is None:
                found = sql.SQL("{} {} {}").format(here, sql.SQL(column.operator(operator)), value)
                continue
            near: Operator = "<=" if strict == "<" else ">="  # an index serves this condition
            found = sql.SQL("({0} {1} {2} and ({0} {3} {2} or {4}))").format(
                here, sql.SQL(column.operator(near)), value, sql.SQL(column.operator(strict)), found
            )
        assert found is not None  # noqa: S101  a key has columns
        return found

    def order(self, values: Sequence[sql.Composable] | None = None) -> sql.Composable:
        """Return the SQL after `order by`, for the key of the row `t` or for these values of a key."""
        each = [column.value("t") for column in self.columns] if values is None else values
        using = (
            sql.SQL("{}").format(value)
            if column.standard
            else sql.SQL("{} using {}").format(value, sql.SQL(column.operator("<")))
            for column, value in zip(self.columns, each, strict=True)
        )
        return _COMMA.join(using)

    def as_table(self, keys: Sequence[Sequence[str]], alias: str = "k") -> sql.Composable:
        """Return SQL for a table of these keys with the columns `key_0`, … and `place`, which counts from 0.

        There must be at least one key.
        """
        rows = (
            sql.SQL("({}, {})").format(
                _COMMA.join(column.literal(text) for column, text in zip(self.columns, key, strict=True)),
                sql.SQL(str(place)),
            )
            for place, key in enumerate(keys)
        )
        return sql.SQL("(values {}) as {} ({}, place)").format(
            _COMMA.join(rows), sql.Identifier(alias), _COMMA.join(map(sql.Identifier, self._names))
        )

    def table_columns(self, alias: str = "k") -> list[sql.Composable]:
        """Return the columns of a key in `as_table`."""
        return [sql.Identifier(alias, name) for name in self._names]

    def equals_row(self, alias: str = "t", table: str = "k") -> sql.Composable:
        """Return SQL that is true if the row `alias` has the key of the row `table`, which `as_table` made."""
        return _AND.join(
            sql.SQL("{} {} {}").format(column.value(alias), sql.SQL(column.operator("=")), value)
            for column, value in zip(self.columns, self.table_columns(table), strict=True)
        )

    def is_one_of(self, keys: Sequence[Sequence[str]], alias: str = "t") -> sql.Composable:
        """Return SQL that is true if the key of this row is one of these."""
        if not keys:
            return sql.SQL("false")
        return sql.SQL("exists (select from {} where {})").format(self.as_table(keys), self.equals_row(alias))

    @property
    def _names(self) -> list[str]:
        return [f"key_{place}" for place in range(len(self.columns))]


def read_comparison(
    connection: Connection, relation: int, names: Sequence[str], *, by_text: bool = False
) -> KeyComparison:
    """Read from the catalog, in this transaction, how the key of this table is compared.

    `names`: the key's columns. Raises NotComparableError if a comparison could run code of an owner. With `by_text`
    values of such columns are compared by their texts instead: that finds equal keys, but does not sort them.
    """
    values = {"relation": relation, "names": list(names)}
    found = queries.rows(connection, KeyColumn, statement("postgres", "key_columns"), values)
    if len(found) < len(names):
        raise NotComparableError("its key was altered just now; run it again")
    for column in found:
        if column.refusal and not by_text:
            raise NotComparableError(
                f"the type {column.declared} of its key column {column.name} {column.refusal}, and comparing such"
                " values may run functions of the type's owner; give the table a key of other types to compare it"
            )
    if not by_text:
        _require_unambiguous(connection, found)
    return KeyComparison(tuple(_by_text(column) if column.refusal else column for column in found))


def _require_unambiguous(connection: Connection, columns: Sequence[KeyColumn]) -> None:
    """Compare nulls, which calls no function. So a table is refused even if no keys are compared now."""
    compared = [
        sql.SQL("null::{0} {1} null::{0}").format(sql.SQL(column.type), sql.SQL(column.operator(operator)))
        for column in columns
        if not column.type.startswith("pg_catalog.")
        for operator in _OPERATORS
    ]
    if compared:
        with no_ambiguity():
            connection.execute(sql.SQL("select {}").format(_COMMA.join(compared)))


def _by_text(column: KeyColumn) -> KeyColumn:
    return replace(column, type="pg_catalog.text", form="text", refused="", standard=True)


@contextmanager
def no_ambiguity() -> Iterator[None]:
    """Raise NotComparableError if a cast that the owner of a type has declared makes a comparison of keys ambiguous."""
    try:
        yield
    except psycopg.errors.AmbiguousFunction as error:
        raise NotComparableError(
            f"an implicit cast of a type of its key makes comparing ambiguous: {connections.one_line(error)}; drop that"
            " cast, or create it as assignment"
        ) from error
