"""Preserve values of dropped events, which later updates may leave out, in `pipeline.known_rows`.

They are copied before the events are dropped, in small batches and under no lock: an interrupted copy is repeated, and
finds the rows that it has copied before. A newer event in the log wins over what was preserved.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from pipeline.log import tables
from pipeline.log.partitions import EventsPartition
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

BATCH = 2_000
"""Rows preserved in one transaction."""
UNMOVED = 2_000
"""The most bytes of a new row of which Postgres moves no value out to TOAST."""
_LATER_SEQ = sql.SQL("n.seq > %(upto)s")
_LATER = sql.SQL("(n.source_epoch, n.commit_lsn, n.commit_idx) > (e.source_epoch, e.commit_lsn, e.commit_idx)")
_PER_COLUMN = 24
"""The bytes that a value may take beyond its JSON text with its name."""


@dataclass(frozen=True)
class PreservedTable:
    """A source table whose values are preserved. `narrow`: rows with a JSON text no longer than this never need it."""

    source: uuid.UUID
    epoch: int
    oid: int
    fixed: list[str]
    plain: list[str]
    columns: int
    growth: int | None
    unknown: bool

    @property
    def narrow(self) -> int | None:
        if self.unknown or self.growth is None:
            return None
        return (UNMOVED - self.columns * _PER_COLUMN) // self.growth

    @property
    def values(self) -> dict[str, Any]:
        """The parameters of the statements that preserve values."""
        return {**vars(self), "narrow": self.narrow}


def preserve(
    connection: Connection, table: EventsTable, partition: EventsPartition, stopped: Callable[[], bool]
) -> bool:
    """Preserve the values in a partition of rows without newer events; False if it was stopped before the end.

    No more events may be written to the partition. The connection must be in autocommit mode and outside of a
    transaction.
    """
    page = sql.SQL(statement("log.retention", "preserve_page"))
    for each in preserved_tables(connection):
        before: str | None = None
        values = {**each.values, "upto": partition.upper - 1, "limit": BATCH}
        _forget_truncated(connection, partition.identifier, values)
        while True:
            if stopped():
                return False
            with connection.transaction():
                connection.execute("set local synchronous_commit = off")  # the drop that follows is durable
                keys, before = _preserve(connection, table, partition.identifier, page, {**values, "before": before})
            if keys < BATCH:
                break
    return True


def preserve_range(
    connection: Connection,
    table: EventsTable,
    of: sql.Identifier,
    preserved: Sequence[PreservedTable],
    first: int,
    upto: int,
) -> None:
    """Preserve the values of a few events of a table or partition, in the transaction that deletes them."""
    page = sql.SQL(statement("log.retention", "preserve_range"))
    for each in preserved:
        values = {**each.values, "first": first, "upto": upto}
        _forget_truncated(connection, of, values)
        _preserve(connection, table, of, page, values)


def preserved_tables(connection: Connection) -> list[PreservedTable]:
    """Return every source table whose values are preserved, by its table versions as known now."""
    return queries.rows(connection, PreservedTable, statement("log.retention", "preserved_tables"))


def _preserve(
    connection: Connection, table: EventsTable, part: sql.Identifier, page: sql.SQL, values: dict[str, Any]
) -> tuple[int, str | None]:
    """Preserve one page; returns how many keys it had, and the last of them."""
    connection.execute("set local enable_hashjoin = off")  # look up row by row, whatever the table's statistics say
    connection.execute("set local enable_mergejoin = off")
    newer = sql.SQL(statement("log.retention", "newer_event"))
    found = [newer.format(events=table.identifier, after=_LATER_SEQ)]
    found += [newer.format(events=other.identifier, after=_LATER) for other in _others(connection, table)]
    query = sql.SQL(statement("log.retention", "preserve_rows")).format(
        page=page.format(part=part), part=part, newer=sql.SQL(" union all ").join(found)
    )
    row = connection.execute(query, values).fetchone()
    assert row is not None  # noqa: S101  an aggregate
    return row[0], row[1]


def _others(connection: Connection, table: EventsTable) -> list[EventsTable]:
    """Return the other events tables, which may hold newer events of the same rows."""
    return [each for each in tables.with_known(connection, []) if each != table]


def _forget_truncated(connection: Connection, part: sql.Identifier, values: dict[str, Any]) -> None:
    connection.execute(sql.SQL(statement("log.retention", "forget_truncated")).format(part=part), values)
