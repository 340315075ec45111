"""SQL as in `table_statements`, for elements that COPY has written into a temporary table of the follower."""

from __future__ import annotations

from functools import cached_property

from psycopg import sql

from pipeline.followers.applying.table_statements import TableStatements


class RelayStatements(TableStatements):
    """The statements of one table. `$1` is the operation whose elements are written.

    The temporary table has no statistics, so Postgres expects one row in 200 to have the operation. So it finds rows of
    the table by index, unless reading a small table is cheaper.
    """

    _materialized = sql.SQL("not materialized")

    def _elements(self, columns: sql.Composable) -> sql.Composable:
        return sql.SQL("(select * from pg_temp.pipeline_given g where g.{} = $1::text) as s").format(
            self._shape.operation
        )

    @cached_property
    def copy_rows(self) -> sql.Composed:
        """COPY of new rows into the table itself."""
        names = sql.SQL(", ").join(sql.Identifier(column.name) for column in self._shape.written)
        return sql.SQL("copy {} ({}) from stdin").format(self.table.identifier, names)

    @cached_property
    def make_given(self) -> str:
        """Create the temporary table for elements."""
        return self._compose("make_given", operation=self._shape.operation)

    @cached_property
    def given_rows(self) -> str:
        """Return the operations of the elements, and if their rows are complete."""
        return self._compose("given_rows", operation=self._shape.operation, left=self._shape.marked("left"))

    @cached_property
    def move_given(self) -> str:
        """Turn updates and upserts into moves."""
        return self._compose("move_given", operation=self._shape.operation)
