"""Rows with every value of every type."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import sql

from tests.fidelity.types import cases, tables
from tests.fidelity.types.cases import Case
from tests.fidelity.types.stage import Comparing


class Kinds:
    """One table for each group of cases, a column and an array column for each case, replicated."""

    def __init__(self, stage: Comparing) -> None:
        self.stage = stage
        self.groups = {title: tables.columns(stage.source, title) for title in cases.GROUPS}
        stage.replicate(*self.inserts())
        self.events = {title: stage.events(title) for title in cases.GROUPS}

    def inserts(self, first: int = 0) -> list[sql.Composed]:
        """Of all rows, whose ids begin there."""
        return [statement for title in cases.GROUPS for statement in self._inserts(title, first)]

    def _inserts(self, title: str, first: int) -> Iterator[sql.Composed]:
        """The last row is null everywhere it may be."""
        columns = self.groups[title]
        rows = max(len(case.values) for case in columns.values())
        arrays = {name: array_values(case) for name, case in columns.items() if case.nulls}
        for number in range(max(rows, 6) + 1):
            given: dict[str, sql.Composable] = {name: scalar(case, number, rows) for name, case in columns.items()}
            given |= {f"{name}_array": chosen(values, number) for name, values in arrays.items()}
            yield sql.SQL("insert into public.{} (id, {}) values ({}, {})").format(
                sql.Identifier(title),
                sql.SQL(", ").join(map(sql.Identifier, given)),
                first + number,
                sql.SQL(", ").join(given.values()),
            )


def cast(value: str | None, case: Case) -> sql.Composed:
    return sql.SQL("cast({} as {})").format(sql.Literal(value), sql.SQL(case.type))


def scalar(case: Case, number: int, rows: int) -> sql.Composed:
    if number >= len(case.values) and (number >= rows or case.nulls):
        return cast(None if case.nulls else case.values[0], case)
    return cast(case.values[min(number, len(case.values) - 1)], case)


def array_values(case: Case) -> list[sql.Composable]:
    """All values and a NULL, two and three dimensions, own lower bounds, an empty one, one of NULL."""
    null, first, last = cast(None, case), cast(case.values[0], case), cast(case.values[-1], case)
    every = sql.SQL(", ").join([cast(value, case) for value in case.values])
    return [
        sql.SQL("array[{}, {}]").format(every, null),
        sql.SQL("array[array[{}, {}], array[{}, {}]]").format(first, null, last, first),
        sql.SQL("array[array[array[{}]], array[array[{}]]]").format(first, last),
        sql.SQL("array_fill({}, array[2, 2], array[-3, 7])").format(last),
        sql.SQL("'{}'"),
        sql.SQL("array[{}]").format(null),
    ]


def chosen(values: list[sql.Composable], number: int) -> sql.Composable:
    return values[number] if number < len(values) else sql.NULL
