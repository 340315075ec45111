"""SQL for the follower that describes an element: its columns, the row that it changes, and its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from psycopg import sql

from pipeline.followers.applying.followed_tables import FollowedColumn, FollowedTable

_COMMA = sql.SQL(", ")
_AND = sql.SQL(" and ")
_PIECE = 800
"""The most columns in one list, with two values each: Postgres allows 1,600 values."""


class ElementShape:
    """SQL for the elements of one table.

    In a statement `t` is the table, `s` the elements, and `given` the same elements as a named query. `written`: the
    columns that get values.
    """

    def __init__(self, table: FollowedTable) -> None:
        self.table = table
        self.written = [column for column in table.columns if column.written]

    def marked(self, name: str) -> sql.Identifier:
        """Return a column of an element that is not a value of the row."""
        return sql.Identifier(f"{self.table.mark}{name}")

    @property
    def operation(self) -> sql.Identifier:
        """The column with the operation, of elements that are in a temporary table."""
        return self.marked("operation")

    @cached_property
    def given(self) -> sql.Composable:
        """The definitions of all columns of an element."""
        return _COMMA.join([self.marks, *self._values])

    @property
    def _values(self) -> list[sql.Composed]:
        return [sql.SQL("{} {}").format(sql.Identifier(column.name), _type(column)) for column in self.written]

    @property
    def in_two(self) -> sql.Composable:
        """The elements of a wide table, whose columns do not fit into one list."""
        record = sql.SQL("pg_catalog.json_to_recordset($1::json) as ({})")
        parts = record.format(self.marks), record.format(_COMMA.join(self._values))
        return sql.SQL("rows from ({}) as s").format(_COMMA.join(parts))

    @cached_property
    def marks(self) -> sql.Composable:
        """The definitions of the columns that are not values of the row."""
        listed = [
            sql.SQL("{} bigint").format(self.marked("seq")),
            sql.SQL("{} boolean").format(self.marked("strict")),
            sql.SQL("{} text[]").format(self.marked("left")),
        ]
        return _COMMA.join([*listed, *self._old(list(enumerate(self._identifying)))])

    def _old(self, columns: Sequence[tuple[int, FollowedColumn]]) -> Iterator[sql.Composed]:
        for index, column in columns:
            yield sql.SQL("{} {}").format(self.marked(f"old{index}"), _type(column))
            if column.as_text and not self.table.key:
                yield sql.SQL("{} text").format(self.marked(f"like{index}"))

    @property
    def _identifying(self) -> Sequence[FollowedColumn]:
        """The columns of the old row that an element contains."""
        return self.table.key or (self.table.columns if self.table.in_order and not self.table.is_wide else ())

    @property
    def found(self) -> sql.Composable:
        """The elements, each with what identifies its row: the key, or without a key the location of one equal row."""
        if self.table.key:
            return sql.SQL("given s")
        return sql.SQL(
            "(select g.*, f.* from given g cross join lateral ("
            "select x.tableoid as {part}, x.ctid as {location} from {table} x where {same} limit 1) f) s"
        ).format(
            part=self.marked("part"), location=self.marked("location"), table=self.table.target, same=self._same_content
        )

    @property
    def same_found(self) -> sql.Composable:
        """SQL that compares a row `t` with the row that `found` has for `s`; true if both are the same row."""
        if self.table.key:
            return self.same_key
        return sql.SQL("t.ctid = s.{} and t.tableoid = s.{}").format(self.marked("location"), self.marked("part"))

    @property
    def same_key(self) -> sql.Composable:
        """SQL that is true if `t` has the key that the row of `s` had."""
        return _AND.join(
            sql.SQL("t.{} {} {}").format(
                sql.Identifier(column.name),
                sql.SQL(column.equals or ""),
                _typed(column, sql.Identifier("s", f"{self.table.mark}old{index}")),
            )
            for index, column in enumerate(self.table.key)
        )

    @property
    def in_the_way(self) -> sql.Composable:
        """SQL that is true if `t` has a unique value that `s` gives to another row."""
        columns = {column.name: column for column in self.written}
        each = [
            _AND.join(
                sql.SQL("t.{} {} {}").format(sql.Identifier(name), sql.SQL(operator), self.value(columns[name]))
                for name, operator in unique
            )
            for unique in self.table.uniques
        ]
        return sql.SQL(" or ").join(sql.SQL("({})").format(condition) for condition in each)

    @property
    def _same_content(self) -> sql.Composable:
        """SQL that is true if the row `x` is the old row of `g`, as text, because not all types have an equality."""
        columns = list(enumerate(self.table.columns))
        if not self.table.is_wide:
            return self._same_values(columns, "g")
        # Elements of a wide table without a key are written one by one, so `g` is the only one of the argument.
        one = "exists (select from pg_catalog.json_to_recordset($1::json) as o ({}) where {})"
        parts = [columns[at : at + _PIECE] for at in range(0, len(columns), _PIECE)]
        return _AND.join(
            sql.SQL(one).format(_COMMA.join(self._old(part)), self._same_values(part, "o")) for part in parts
        )

    def _same_values(self, columns: Sequence[tuple[int, FollowedColumn]], of: str) -> sql.Composable:
        plain: list[tuple[sql.Composable, sql.Composable]] = []
        conditions = []
        for index, column in columns:
            there = sql.Identifier("x", column.name)
            old = sql.Identifier(of, f"{self.table.mark}old{index}")
            if column.as_text:
                like = sql.Identifier(of, f"{self.table.mark}like{index}")
                conditions.append(
                    sql.SQL(
                        "case when {like} is null then {there}::text is not distinct from {old}"
                        " else coalesce({there}::text, 'null') = coalesce({old}, 'null')"
                        " or coalesce(pipeline_follower.document({there}::text) = {like}::jsonb, false) end"
                    ).format(there=there, old=old, like=like)
                )
            else:
                plain.append((there, old))
        if plain:
            rows = [sql.SQL("row({})::text").format(_COMMA.join(side)) for side in zip(*plain, strict=True)]
            conditions.insert(0, sql.SQL(" = ").join(rows))
        return _AND.join(conditions) if conditions else sql.SQL("true")

    def assignments(self, columns: Sequence[FollowedColumn], *, excluded: bool = False) -> sql.Composable:
        """SQL that sets the columns of an update, except values that the element leaves out.

        `excluded`: the values of an insert that conflicts.
        """
        return _COMMA.join(
            sql.SQL("{} = {}").format(sql.Identifier(column.name), self._new_value(column, excluded=excluded))
            for column in columns
        )

    def _new_value(self, column: FollowedColumn, *, excluded: bool) -> sql.Composable:
        there = sql.Identifier("t", column.name)
        value = sql.Identifier("excluded", column.name) if excluded else self.value(column)
        cases = []
        if not excluded:
            cases.append(sql.SQL("when {} = any(s.{}) then {}").format(column.name, self.marked("left"), there))
        if column.large:  # a large value that is written again costs its size in WAL, though it is equal
            cases.append(sql.SQL("when pg_catalog.record_image_eq(row({0}), row({1})) then {0}").format(there, value))
        if not cases:
            return value
        return sql.SQL("case {} else {} end").format(sql.SQL(" ").join(cases), value)

    def value(self, column: FollowedColumn) -> sql.Composable:
        """The value that the element `s` gives the column."""
        return _typed(column, sql.Identifier("s", column.name))


def _type(column: FollowedColumn) -> sql.Composable:
    return sql.SQL(column.carried_as)


def _typed(column: FollowedColumn, value: sql.Composable) -> sql.Composable:
    if column.carried_as == column.type_name:
        return value
    return sql.SQL("{}::{}").format(value, sql.SQL(column.type_name))
