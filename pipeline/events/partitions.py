"""Partitions of an events table by seq, made ahead of need. There is no default partition, so none may be missing."""

from __future__ import annotations

from psycopg import sql

from pipeline.db import Connection
from pipeline.db import sql as statement
from pipeline.events.log import EventsTable, last_seq

PARTITION_ROWS = 10_000_000
"""seq values a partition spans."""


class Partitions:
    """Knows up to where an events table has partitions; one per connection that writes it."""

    def __init__(self, connection: Connection, table: EventsTable, rows: int = PARTITION_ROWS) -> None:
        self._connection = connection
        self._table = table
        self._rows = rows
        self._bound = self._read_bound()

    def reserve(self, seq: int) -> None:
        """Make sure that every seq up to this one, and half a partition more, has a place.

        Creates and attaches, never `partition of`: that would wait for every reader, and make every reader wait.
        """
        while self._bound <= seq + self._rows // 2:
            self._attach(self._bound, self._bound + self._rows)
            self._bound += self._rows

    def forget(self) -> None:
        """Look again: a transaction that attached partitions may have been rolled back."""
        self._bound = self._read_bound()

    def _read_bound(self) -> int:
        row = self._connection.execute(
            statement("events", "upper_bound"), {"table": self._table.identifier.as_string(self._connection)}
        ).fetchone()
        first = last_seq(self._connection, self._table) + 1
        return int(row[0]) if row and row[0] is not None else first

    def _attach(self, lower: int, upper: int) -> None:
        names: dict[str, sql.Composable] = {
            "partition": sql.Identifier("pipeline", f"{self._table.name[:40]}_{lower:012d}"),
            "table": self._table.identifier,
            "lower": sql.Literal(lower),
            "upper": sql.Literal(upper),
        }
        with self._connection.transaction():
            self._connection.execute(sql.SQL("create table {partition} (like {table} including all)").format(**names))
            self._connection.execute(
                sql.SQL(
                    "alter table {table} attach partition {partition} for values from ({lower}) to ({upper})"
                ).format(**names)
            )
