"""Create partitions of an events table by seq before they are needed: there is no default partition to catch a row."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.errors import StatementRefusedError
from pipeline.log.table import EventsTable, last_seq
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

PARTITION_ROWS = 10_000_000
"""How many seqs a partition spans; with a retention, at most that many."""
MIN_ROWS = 10_000
"""How many seqs a partition spans at least."""
PER_RETENTION = 8
"""How many partitions cover a retention at the recent rate. An event is kept up to an eighth longer than asked."""
LAST_SEQ = 2**63 - 2
"""The largest seq: a partition's upper bound is one more, and a bigint too."""
MAX_GROWTH = 8
"""The most that a partition grows, as a multiple of the previous one: a large transaction can look like a high rate."""
_LONGEST_STEM = 40
_LOCK_TIMEOUT, _AHEAD_LOCK_TIMEOUT = "200ms", "50ms"
_AHEAD_EVERY = 1.0
_PARTITION_KEY = "select pg_get_partkeydef(%(table)s::regclass)"
"""Read the partition key of an events table; null if it is not partitioned."""


@dataclass(frozen=True)
class EventsPartition:
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


def attached(connection: Connection, table: EventsTable) -> list[EventsPartition]:
    """Return the partitions of a table in order of seq; empty for a table that is not partitioned by seq."""
    name = table.identifier.as_string(connection)
    return queries.rows(connection, EventsPartition, statement("log", "list_partitions"), {"table": name})


def stem(table: EventsTable) -> str:
    """Return the beginning of the names of a table's partitions.

    All are in one schema: a digest distinguishes tables of the same name.
    """
    if table.schema == "public" and len(table.name.encode()) <= _LONGEST_STEM:
        return table.name
    # The cut may fall inside a character.
    digest = hashlib.md5(str(table).encode(), usedforsecurity=False).hexdigest()[:8]
    return f"{table.name.encode()[: _LONGEST_STEM - 9].decode(errors='ignore')}_{digest}"


class PartitionCreator:
    """Knows up to which seq an events table has partitions; one object for each connection that writes it.

    `rows`: how many seqs a partition spans. With a `retention` in seconds it spans at most that many, and otherwise
    what arrives in an eighth of the retention, so that whole partitions can be dropped soon after they are old enough.
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
        self._next_try_ahead = 0.0
        name = {"table": table.identifier.as_string(connection)}
        self._by_seq = queries.value(connection, _PARTITION_KEY, name) == "RANGE (seq)"
        self._read_bounds()

    def has_room(self, seq: int) -> bool:
        """Return True if partitions exist for this seq and beyond, so that `reserve` has nothing to do."""
        half = (self._upper - self._lower) // 2
        return (
            not self._by_seq
            or self._upper > seq + half
            or (self._upper > seq and time.monotonic() < self._next_try_ahead)
        )

    def reserve(self, seq: int, first: int = 1) -> None:
        """Make sure that every seq up to this one has a partition, and try for half a partition more.

        No seq before `first` will be used: a sequence that was set far ahead gets one partition for the gap.

        Creates a table and attaches it, never `partition of`: that would wait for every reader, and make every reader
        wait. A session that detaches a partition may block this for a moment; only a partition that is needed now waits
        for it. A legacy table is not partitioned by seq: there is nothing to reserve.
        """
        if self.has_room(seq):
            return
        if seq > LAST_SEQ + 1:
            raise self.used_up()
        while self._upper <= seq:
            gap = max(0, first - self._upper)
            if not self._attach(gap + self._span(seq - gap), _LOCK_TIMEOUT):
                time.sleep(0.02)
        if self.has_room(seq):
            return
        if not self._attach(self._span(seq), _AHEAD_LOCK_TIMEOUT):
            self._next_try_ahead = time.monotonic() + _AHEAD_EVERY

    def used_up(self) -> StatementRefusedError:
        """Return the error to raise if no seq is left."""
        table = self._table
        return StatementRefusedError(
            f"the sequence of {table} is at its end: no seq beyond {LAST_SEQ} can be written; set it back to the "
            f"newest event, with setval of {table.schema}.{table.sequence_name}"
        )

    def forget(self) -> None:
        """Read the partitions again: a transaction that attached some may have been rolled back."""
        self._read_bounds()

    def _read_bounds(self) -> None:
        found = attached(self._connection, self._table)
        self._lower, self._upper = (found[-1].lower, found[-1].upper) if found else (1 - self._rows, 1)
        self._lower_before = found[-2].lower if len(found) > 1 else self._lower
        # The first partition begins at 1, even if earlier seqs were never used: readers take all below it as dropped.
        self._taken = 0 if found else last_seq(self._connection, self._table)

    def _span(self, seq: int) -> int:
        """Return how many seqs the next partition spans."""
        if self._retention is None:
            return self._rows
        smallest = min(MIN_ROWS, self._rows)
        rate = self._rate(seq)
        if rate is None:
            return max(smallest, min(self._rows, seq + 1 - self._upper))
        grown = min(self._rows, MAX_GROWTH * max(smallest, self._upper - self._lower))
        wanted = max(seq + 1 - self._upper, min(int(rate * self._retention / PER_RETENTION), grown))
        return max(smallest, min(self._rows, wanted))

    def _rate(self, seq: int) -> float | None:
        """Return the events a second since the first event of the last partition with events; None without any."""
        query = sql.SQL(statement("log", "recent_start")).format(events=self._table.identifier)
        for start in (self._lower, self._lower_before):
            found = self._connection.execute(query, {"seq": start, "upto": seq, "name": str(self._table)}).fetchone()
            if found is not None:
                return int(found[0]) / max(float(found[1]), 0.001)
        return None

    def _attach(self, rows: int, lock_timeout: str) -> bool:
        """Add a partition; False, with nothing changed, if the lock could not be taken in time."""
        lower, upper = self._upper, min(self._upper + self._taken + rows, LAST_SEQ + 1)
        names: dict[str, sql.Composable] = {
            "partition": sql.Identifier("pipeline", f"{stem(self._table)}_{lower:012d}"),
            "table": self._table.identifier,
            "lower": sql.Literal(lower),
            "upper": sql.Literal(upper),
        }
        try:
            with self._connection.transaction(), queries.lock_timeout(self._connection, lock_timeout):
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
        self._lower_before, self._lower, self._upper, self._taken = self._lower, lower, upper, 0
        return True
