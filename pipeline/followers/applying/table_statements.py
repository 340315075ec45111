"""SQL for the follower that writes elements (`pipeline.followers.applying.rendering`) into one table.

`$1` is a JSON array of elements. The statements that change rows by their key return the seq of the first missing row,
or null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from psycopg import sql

from pipeline.followers.applying.element_shape import ElementShape
from pipeline.followers.applying.followed_tables import FollowedColumn, FollowedTable
from pipeline.postgres.queries import statement

_COMMA = sql.SQL(", ")


class TableStatements:
    """The statements of one table, each composed when it is first needed."""

    _materialized = sql.SQL("materialized")

    def __init__(self, table: FollowedTable) -> None:
        self.table = table
        self._shape = ElementShape(table)

    @cached_property
    def delete(self) -> str:
        """Delete rows by their keys; without a key, delete single rows by all of their values."""
        shape = self._shape
        return self._compose("delete_rows", given=shape.marks, found=shape.found, same=shape.same_found)

    @cached_property
    def update(self) -> str:
        """Update rows by their keys. The key does not change, nor do values that the element leaves out."""
        columns = [column for column in self._shape.written if column.equals is None]
        if not columns:
            return self._compose("require_rows", given=self._shape.marks, same=self._shape.same_key)
        return self._update(columns)

    @cached_property
    def update_with_key(self) -> str:
        """Update rows as `update` does, and also their keys."""
        return self._update(self._shape.written)

    def _update(self, columns: Sequence[FollowedColumn]) -> str:
        shape = self._shape
        return self._compose(
            "update_rows", found=shape.found, same=shape.same_found, assignments=shape.assignments(columns)
        )

    @cached_property
    def insert(self) -> str:
        """Insert new rows."""
        return self._insert("insert_rows", map(self._shape.value, self._shape.written))

    @cached_property
    def upsert(self) -> str:
        """Insert rows, or update them if they exist."""
        changed = [column for column in self._shape.written if column.equals is None]
        taken: sql.Composable = sql.SQL("nothing")
        if changed:
            taken = sql.SQL("update set {}").format(self._shape.assignments(changed, excluded=True))
        key = _COMMA.join(sql.Identifier(column.name) for column in self.table.key)
        return self._insert("upsert_rows", map(self._shape.value, self._shape.written), key=key, action=taken)

    @cached_property
    def make_carried(self) -> str:
        """Create the temporary table for values that the log does not have."""
        return self._compose("make_carried", columns=self._carried_values)

    @cached_property
    def take_rows(self) -> str:
        """Delete rows, and keep their values that the log lacks in the temporary table."""
        shape = self._shape
        return self._compose("take_rows", given=shape.marks, same=shape.same_key, carried=self._carried_values)

    @cached_property
    def clear(self) -> str:
        """Delete rows with a unique value of a row whose old values are unknown; only for tables with `uniques`."""
        return self._compose("clear_way", in_the_way=self._shape.in_the_way)

    @cached_property
    def put_back(self) -> str:
        """Insert the deleted rows again with their new values."""
        values = [*map(self._value_or_carried, self._shape.written)]
        values += [sql.SQL("c.{}").format(_carried_column(self._carried.index(name))) for name in self.table.own]
        return self._insert("put_back_rows", values, own=self.table.own)

    @cached_property
    def put_new(self) -> str:
        """Insert the rows that did not exist."""
        shape = self._shape
        return self._insert("put_new_rows", map(shape.value, shape.written), left=shape.marked("left"))

    @property
    def _carried(self) -> list[str]:
        """The columns that are kept while a row is deleted: all but its key."""
        return [*self.table.own, *(column.name for column in self._shape.written if column.equals is None)]

    @property
    def _carried_values(self) -> sql.Composable:
        carried = enumerate(self._carried)
        return sql.Composed(
            [sql.SQL(", t.{} as {}").format(sql.Identifier(name), _carried_column(index)) for index, name in carried]
        )

    def _insert(
        self,
        name: str,
        values: Iterator[sql.Composable] | Sequence[sql.Composable],
        own: Sequence[str] = (),
        **parts: Any,
    ) -> str:
        names = [sql.Identifier(each) for each in (*(column.name for column in self._shape.written), *own)]
        listed = sql.SQL("({})").format(_COMMA.join(names)) if names else sql.SQL("")
        parts = {"columns": listed, "values": _COMMA.join(values), **parts}
        return self._compose(name, table=self.table.identifier, **parts)

    def _compose(self, name: str, **parts: Any) -> str:
        columns = parts.pop("given", self._shape.given)
        in_two = self.table.is_wide and columns is self._shape.given
        given = {
            "table": self.table.target,
            "given": columns,
            "elements": self._shape.in_two if in_two else self._elements(columns),
            "materialized": self._materialized,
            "seq": self._shape.marked("seq"),
            "strict": self._shape.marked("strict"),
            **parts,
        }
        return sql.SQL(statement("followers.applying", name)).format(**given).as_string(None)

    def _elements(self, columns: sql.Composable) -> sql.Composable:
        return sql.SQL("pg_catalog.json_to_recordset($1::json) as s({})").format(columns)

    def _value_or_carried(self, column: FollowedColumn) -> sql.Composable:
        value = self._shape.value(column)
        if column.equals is not None:
            return value
        carried = _carried_column(self._carried.index(column.name))
        left = self._shape.marked("left")
        return sql.SQL("case when {} = any(s.{}) then c.{} else {} end").format(column.name, left, carried, value)


def _carried_column(index: int) -> sql.Identifier:
    """Return the column of the temporary table for a kept value."""
    return sql.Identifier(f"c{index}")
