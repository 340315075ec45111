"""How the values of a table's key are compared without running code of the owner of a table or type.

Casts to a domain run its checks, casts from or to a type run what its owner has declared for that, and an operator
that is found by its name alone may be an owner's. So a value is compared as the base type of its domain, a cast to a
type outside of pg_catalog is one of a literal, and each operator is written with its schema. Keys of types for which
that is impossible are refused. The types were tried on Postgres 15, 16 and 18.
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
    """A column of a key. `type`: the one as which its values are compared, with its schema; `declared`: its own.

    `form`: how a value becomes one of that type; `refused`: why it cannot; `operators`: of another schema than
    pg_catalog unless `standard`.
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
        """Why values cannot be compared without running code of an owner; empty if they can."""
        if self.refused or self.standard or len(self.operators or ()) == len(_OPERATORS):
            return self.refused
        return "has no operators of its own by which it is sorted"

    def operator(self, name: Operator) -> str:
        """The operator with its schema, as SQL."""
        found = None if self.standard else self.operators
        return f"operator({found[_OPERATORS.index(name)] if found else f'pg_catalog.{name}'})"

    def value(self, alias: str) -> sql.Composable:
        """The column of this row as a value of `type`."""
        column = sql.Identifier(alias, self.name)
        if self.form == "itself":
            return column
        # An owner may declare a cast from an array of a domain, but none from a domain, and none from text.
        given = sql.SQL("pg_catalog.concat({})").format(column) if self.form == "text" else column
        return sql.SQL("{}::{}").format(given, sql.SQL(self.type))

    def literal(self, text: str) -> sql.Composable:
        """This text as a value of `type`."""
        return sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(self.type))


@dataclass(frozen=True)
class KeyComparison:
    """SQL that compares keys of one table at one server. Keys are texts, in the order of the columns.

    The SQL has operators in it, so a statement with it is executed without parameters.
    """

    columns: tuple[KeyColumn, ...]

    def values(self, alias: str = "t") -> sql.Composable:
        """The key of this row as a list of values that can be compared."""
        return _COMMA.join(column.value(alias) for column in self.columns)

    def bounded(self, operator: Literal["<", "<=", ">=", ">"], key: Sequence[str], alias: str = "t") -> sql.Composable:
        """Return SQL that is true if the key of this row comes before or after another one."""
        values = [column.literal(text) for column, text in zip(self.columns, key, strict=True)]
        if len({column.operator(operator) for column in self.columns}) == 1:
            written = sql.SQL(self.columns[0].operator(operator))
            return sql.SQL("row({}) {} row({})").format(self.values(alias), written, _COMMA.join(values))
        return self._by_column(operator, values, alias)

    def _by_column(self, operator: Operator, values: Sequence[sql.Composable], alias: str) -> sql.Composable:
        """The comparison of rows, spelled out: operators of two schemas cannot stand in one."""
        strict: Operator = "<" if operator.startswith("<") else ">"
        found: sql.Composable | None = None
        for column, value in reversed(list(zip(self.columns, values, strict=True))):
            here = column.value(alias)
            if found is None:
                found = sql.SQL("{} {} {}").format(here, sql.SQL(column.operator(operator)), value)
                continue
            near: Operator = "<=" if strict == "<" else ">="  # which an index serves
            found = sql.SQL("({0} {1} {2} and ({0} {3} {2} or {4}))").format(
                here, sql.SQL(column.operator(near)), value, sql.SQL(column.operator(strict)), found
            )
        assert found is not None  # noqa: S101  a key has columns
        return found

    def order(self, values: Sequence[sql.Composable] | None = None) -> sql.Composable:
        """Return the SQL behind `order by`, for the key of the row `t` or for these values of it."""
        each = [column.value("t") for column in self.columns] if values is None else values
        using = (
            sql.SQL("{}").format(value)
            if column.standard
            else sql.SQL("{} using {}").format(value, sql.SQL(column.operator("<")))
            for column, value in zip(self.columns, each, strict=True)
        )
        return _COMMA.join(using)

    def listed(self, keys: Sequence[Sequence[str]], alias: str = "k") -> sql.Composable:
        """These keys, at least one, as a table of the columns `key_0`, … and `place`, which counts from 0."""
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

    def listed_values(self, alias: str = "k") -> list[sql.Composable]:
        """The columns of a key in `listed`."""
        return [sql.Identifier(alias, name) for name in self._names]

    def same(self, alias: str = "t", listed: str = "k") -> sql.Composable:
        """Return SQL that is true if the key of this row is that of a row of `listed`."""
        return _AND.join(
            sql.SQL("{} {} {}").format(column.value(alias), sql.SQL(column.operator("=")), value)
            for column, value in zip(self.columns, self.listed_values(listed), strict=True)
        )

    def is_one_of(self, keys: Sequence[Sequence[str]], alias: str = "t") -> sql.Composable:
        """Return SQL that is true if the key of this row is one of these."""
        if not keys:
            return sql.SQL("false")
        return sql.SQL("exists (select from {} where {})").format(self.listed(keys), self.same(alias))

    @property
    def _names(self) -> list[str]:
        return [f"key_{place}" for place in range(len(self.columns))]


def read(connection: Connection, relation: int, names: Sequence[str], *, by_text: bool = False) -> KeyComparison:
    """How the key of this table is compared, as the catalog has it in this transaction.

    `names`: the key's columns. Raises NotComparableError if that could run code of an owner; with `by_text` values of
    such columns are compared by their texts instead, which only says whether keys are the same.
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
    """Compare nulls, which calls no function: a table is refused also if no comparison of its keys is needed now."""
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
    """Raise NotComparableError if a cast that a type's owner has declared makes a comparison of keys ambiguous."""
    try:
        yield
    except psycopg.errors.AmbiguousFunction as error:
        raise NotComparableError(
            f"an implicit cast of a type of its key makes comparing ambiguous: {connections.one_line(error)}; drop that"
            " cast, or create it as assignment"
        ) from error
