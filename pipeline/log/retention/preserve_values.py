"""Values that a later update may leave out are kept when the last event that has them goes: in `pipeline.known_rows`.

Carried over before the events go, in small batches and under no lock: who dies in between begins again, and finds what
is there already. What has a newer event in the log, or is from the same one, wins over what was carried.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from pipeline.log import tables
from pipeline.log.partitions import Partition
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

BATCH = 2_000
"""Rows carried over in one transaction."""
UNMOVED = 2_000
"""Bytes up to which Postgres moves no value of a new row out of it."""
_LATER_SEQ = sql.SQL("n.seq > %(upto)s")
_LATER = sql.SQL("(n.source_epoch, n.commit_lsn, n.commit_idx) > (e.source_epoch, e.commit_lsn, e.commit_idx)")
_PER_COLUMN = 24
"""Bytes that a value may take more than its JSON text with its name."""


@dataclass(frozen=True)
class Carried:
    """A source table whose rows are carried over. `narrow`: JSON texts of rows up to this length never need it."""

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
        """For the statements."""
        return {**vars(self), "narrow": self.narrow}


def carry(connection: Connection, table: EventsTable, partition: Partition, stopped: Callable[[], bool]) -> bool:
    """Keep what a partition knows of rows without newer events; False when it was stopped before the end.

    No more events may come into the partition. The connection must be in autocommit mode and outside of a transaction.
    """
    page = sql.SQL(statement("log.retention", "carry_page"))
    for each in carried_tables(connection):
        before: str | None = None
        values = {**each.values, "upto": partition.upper - 1, "limit": BATCH}
        _forget_truncated(connection, partition.identifier, values)
        while True:
            if stopped():
                return False
            with connection.transaction():
                connection.execute("set local synchronous_commit = off")  # the drop, which comes later, is durable
                keys, before = _carry(connection, table, partition.identifier, page, {**values, "before": before})
            if keys < BATCH:
                break
    return True


def carry_range(
    connection: Connection, table: EventsTable, of: sql.Identifier, carried: Sequence[Carried], first: int, upto: int
) -> None:
    """The same of a few events of a table or partition, in the transaction that deletes them."""
    page = sql.SQL(statement("log.retention", "carry_range"))
    for each in carried:
        values = {**each.values, "first": first, "upto": upto}
        _forget_truncated(connection, of, values)
        _carry(connection, table, of, page, values)


def carried_tables(connection: Connection) -> list[Carried]:
    """Every source table whose rows are carried over, as the relation history knows them now."""
    return queries.rows(connection, Carried, statement("log.retention", "carried_tables"))


def _carry(
    connection: Connection, table: EventsTable, part: sql.Identifier, page: sql.SQL, values: dict[str, Any]
) -> tuple[int, str | None]:
    """How many keys that were, and the last of them."""
    connection.execute("set local enable_hashjoin = off")  # each row by itself, whatever the planner thinks of a table
    connection.execute("set local enable_mergejoin = off")
    newer = sql.SQL(statement("log.retention", "carry_newer"))
    found = [newer.format(events=table.identifier, after=_LATER_SEQ)]
    found += [newer.format(events=other.identifier, after=_LATER) for other in _others(connection, table)]
    query = sql.SQL(statement("log.retention", "carry_rows")).format(
        page=page.format(part=part), part=part, newer=sql.SQL(" union all ").join(found)
    )
    row = connection.execute(query, values).fetchone()
    assert row is not None  # noqa: S101  an aggregate
    return row[0], row[1]


def _others(connection: Connection, table: EventsTable) -> list[EventsTable]:
    """Further events tables, whose events may be newer ones of the same rows."""
    return [each for each in tables.with_known(connection, []) if each != table]


def _forget_truncated(connection: Connection, part: sql.Identifier, values: dict[str, Any]) -> None:
    connection.execute(sql.SQL(statement("log.retention", "forget_truncated")).format(part=part), values)
