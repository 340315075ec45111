"""Partitions of an events table by seq, made ahead of need. There is no default partition, so none may be missing."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.log.table import EventsTable, last_seq
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

PARTITION_ROWS = 10_000_000
"""seq values a partition spans; the most, where a retention makes them smaller."""
SMALLEST = 10_000
"""The fewest that one spans for the sake of a retention."""
SHARE = 8
"""So many partitions make up a retention at the recent rate: what is kept longer than it is an eighth."""
GROWTH = 8
"""Times the span of the one before, at most: what looks like a rate may be one large transaction."""
_LONGEST_STEM = 40
_PATIENCE, _AHEAD_PATIENCE = "200ms", "50ms"
_AHEAD_EVERY = 1.0


@dataclass(frozen=True)
class Partition:
    """An attached partition: `lower` <= seq < `upper`."""

    oid: int
    schema: str
    name: str
    lower: int
    upper: int

    @property
    def identifier(self) -> sql.Identifier:
        """The name, quoted for SQL."""
        return sql.Identifier(self.schema, self.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def attached(connection: Connection, table: EventsTable) -> list[Partition]:
    """The partitions of a table in order of seq; none of a table that has no partitions."""
    name = table.identifier.as_string(connection)
    return queries.rows(connection, Partition, statement("log", "list_partitions"), {"table": name})


def _stem(table: EventsTable) -> str:
    """How the names of its partitions begin: all are in one schema, so tables of one name are told apart."""
    if table.schema == "public" and len(table.name.encode()) <= _LONGEST_STEM:
        return table.name
    # What is cut may end inside of a character.
    digest = hashlib.md5(str(table).encode(), usedforsecurity=False).hexdigest()[:8]
    return f"{table.name.encode()[: _LONGEST_STEM - 9].decode(errors='ignore')}_{digest}"


class Partitions:
    """Knows up to where an events table has partitions; one per connection that writes it.

    `rows`: how many seqs one spans. With a `retention` in seconds that is the most, and one spans what comes in an
    eighth of it, so that whole partitions can be dropped soon after their events are old enough.
    """

    def __init__(
        self,
        connection: Connection,
        table: EventsTable,
        rows: int = PARTITION_ROWS,
        retention: float | None = None,
    ) -> None:
        self._connection = connection
        self._table = table
        self._rows = rows
        self._retention = retention
        self._not_ahead_before = 0.0
        name = {"table": table.identifier.as_string(connection)}
        self._by_seq = queries.value(connection, statement("log", "divided_by"), name) == "RANGE (seq)"
        self._read_bound()

    def has_room(self, seq: int) -> bool:
        """Whether `reserve` would find nothing to do for this seq."""
        half = (self._bound - self._lower) // 2
        return (
            not self._by_seq
            or self._bound > seq + half
            or (self._bound > seq and time.monotonic() < self._not_ahead_before)
        )

    def reserve(self, seq: int) -> None:
        """Make sure that every seq up to this one has a place, and try for half a partition more.

        Creates and attaches, never `partition of`: that would wait for every reader, and make every reader wait.
        Somebody who detaches a partition may be in the way for moments. What is not needed yet does not wait for that.
        A table from before is not divided by seq: there is nothing to reserve.
        """
        if self.has_room(seq):
            return
        while self._bound <= seq:
            if not self._attach(self._span(seq), _PATIENCE):
                time.sleep(0.02)
        if self.has_room(seq):
            return
        if not self._attach(self._span(seq), _AHEAD_PATIENCE):
            self._not_ahead_before = time.monotonic() + _AHEAD_EVERY

    def forget(self) -> None:
        """Look again: a transaction that attached partitions may have been rolled back."""
        self._read_bound()

    def _read_bound(self) -> None:
        found = attached(self._connection, self._table)
        self._lower, self._bound = (found[-1].lower, found[-1].upper) if found else (1 - self._rows, 1)
        self._before = found[-2].lower if len(found) > 1 else self._lower
        # The first begins at 1, whatever was taken in vain: of what is below it, readers are told that it is gone.
        self._taken = 0 if found else last_seq(self._connection, self._table)

    def _span(self, seq: int) -> int:
        """seqs that the next partition spans."""
        if self._retention is None:
            return self._rows
        smallest = min(SMALLEST, self._rows)
        rate = self._rate(seq)
        if rate is None:
            return max(smallest, min(self._rows, seq + 1 - self._bound))
        grown = min(self._rows, GROWTH * max(smallest, self._bound - self._lower))
        wanted = max(seq + 1 - self._bound, min(int(rate * self._retention / SHARE), grown))
        return max(smallest, min(self._rows, wanted))

    def _rate(self, seq: int) -> float | None:
        """Events a second since the last partition that has any began; None when there are none."""
        query = sql.SQL(statement("log", "recent_start")).format(events=self._table.identifier)
        for start in (self._lower, self._before):
            found = self._connection.execute(query, {"seq": start}).fetchone()
            if found is not None:
                return (seq + 1 - int(found[0])) / max(float(found[1]), 0.001)
        return None

    def _attach(self, rows: int, patience: str) -> bool:
        """False when a lock was not to be had for so long: then nothing has happened."""
        lower, upper = self._bound, self._bound + self._taken + rows
        names: dict[str, sql.Composable] = {
            "partition": sql.Identifier("pipeline", f"{_stem(self._table)}_{lower:012d}"),
            "table": self._table.identifier,
            "lower": sql.Literal(lower),
            "upper": sql.Literal(upper),
        }
        try:
            with self._connection.transaction(), queries.lock_timeout(self._connection, patience):
                self._connection.execute(
                    sql.SQL("create table {partition} (like {table} including all)").format(**names)
                )
                self._connection.execute(
                    sql.SQL(
                        "alter table {table} attach partition {partition} for values from ({lower}) to ({upper})"
                    ).format(**names)
                )
        except psycopg.errors.LockNotAvailable:
            return False
        self._before, self._lower, self._bound, self._taken = self._lower, lower, upper, 0
        return True
