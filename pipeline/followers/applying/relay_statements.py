"""The same for elements that are in a temporary table of the follower, where COPY has put them."""

from __future__ import annotations

from functools import cached_property

from psycopg import sql

from pipeline.followers.applying.table_statements import TableStatements


class RelayStatements(TableStatements):
    """Of one table. `$1` is the operation whose elements are meant.

    Of a table without statistics Postgres expects one row in 200 to have that operation: so it finds rows by index, but
    in a table so small that it is cheaper to read it.
    """

    _materialized = sql.SQL("not materialized")

    def _elements(self, columns: sql.Composable) -> sql.Composable:
        return sql.SQL("(select * from pg_temp.pipeline_given g where g.{} = $1::text) as s").format(
            self._shape.operation
        )

    @cached_property
    def copy_rows(self) -> sql.Composed:
        """COPY of new rows, as they are."""
        names = sql.SQL(", ").join(sql.Identifier(column.name) for column in self._shape.written)
        return sql.SQL("copy {} ({}) from stdin").format(self.table.identifier, names)

    @cached_property
    def make_given(self) -> str:
        """The table for elements."""
        return self._compose("make_given", operation=self._shape.operation)

    @cached_property
    def given_rows(self) -> str:
        """What is in it."""
        return self._compose("given_rows", operation=self._shape.operation, left=self._shape.marked("left"))

    @cached_property
    def move_given(self) -> str:
        """What is to be updated there is to be moved."""
        return self._compose("move_given", operation=self._shape.operation)
