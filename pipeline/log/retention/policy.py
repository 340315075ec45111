"""What of an events table is old enough to go, and what has gone. Ages count from an event's arrival in the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from psycopg import sql

from pipeline.log import partitions
from pipeline.log.partitions import Partition
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

TRIM_AFTER = 1.5
"""So many retentions old, the first events of a partition go row by row: all of it will not be old for a while."""


@dataclass(frozen=True)
class Dropped:
    """Every seq below `below` is gone, or is going. `dropping`: oid of a partition whose drop began at `since`."""

    below: int = 1
    at: datetime | None = None
    dropping: int | None = None
    since: datetime | None = None


@dataclass(frozen=True)
class Event:
    """An event's seq and when it arrived."""

    seq: int
    at: datetime


@dataclass(frozen=True)
class Trim:
    """Events of one table, or of one partition, that go row by row: those up to `upto` that are old enough."""

    of: sql.Identifier
    upto: int


@dataclass(frozen=True)
class Plan:
    """What may go now: whole partitions, oldest first, then rows. `aged_upto`: what age alone would let go.

    `due`: when the next of what stays is old enough, as far as that is known. `oldest`: the first event there is.
    """

    now: datetime
    drops: Sequence[Partition] = ()
    trim: Trim | None = None
    aged_upto: int = 0
    due: datetime | None = None
    oldest: Event | None = None


def dropped(connection: Connection, table: EventsTable) -> Dropped:
    """What was dropped so far."""
    return (
        queries.one(connection, Dropped, statement("log.retention", "find_dropped"), {"table": str(table)}) or Dropped()
    )


def record(connection: Connection, table: EventsTable, below: int, partition: Partition | None = None) -> None:
    """Say that every seq below `below` is gone. Before it is: a reader below must get an error, never a gap."""
    oid, name = (partition.oid, str(partition)) if partition else (None, None)
    values = {"table": str(table), "below": below, "oid": oid, "name": name}
    connection.execute(statement("log.retention", "record_drop"), values)


def take_back(connection: Connection, table: EventsTable, before: Dropped) -> None:
    """Undo `record` of a partition that has not been touched."""
    connection.execute(statement("log.retention", "take_back_drop"), {"table": str(table), "below": before.below})


def plan(connection: Connection, table: EventsTable, keep: float, needed_after: int) -> Plan:
    """What may go when events are kept for `keep` seconds and readers still need every seq above `needed_after`.

    The newest event stays in any case, and with it the partition that the shuffler writes to.
    """
    row = connection.execute("select clock_timestamp()").fetchone()
    head = newest(connection, table.identifier)
    below = dropped(connection, table).below
    oldest = first(connection, table.identifier, below)
    assert row is not None  # noqa: S101  a function call
    if head is None or oldest is None:
        return Plan(row[0])
    old = row[0] - timedelta(seconds=keep)
    parts = partitions.attached(connection, table)
    aged = _aged(connection, parts, head.seq, old)
    drops = [each for each in aged if each.upper - 1 <= needed_after]
    found = Plan(row[0], drops, None, aged[-1].upper - 1 if aged else 0, None, oldest)
    if len(drops) < len(aged):
        return found
    rest = parts[len(aged)] if parts else table
    return _with_rest(connection, found, rest, head, min(needed_after, head.seq - 1), keep)


def _with_rest(
    connection: Connection, found: Plan, piece: Partition | EventsTable, head: Event, upto: int, keep: float
) -> Plan:
    """The same with what is to be said of the first piece that does not go as a whole."""
    begin = first(connection, piece.identifier, found.oldest.seq if found.oldest else 1)
    if begin is None:
        return found
    slack = TRIM_AFTER if isinstance(piece, Partition) else 1.0
    due = begin.at + timedelta(seconds=keep * slack)
    if due < found.now:
        trim = Trim(piece.identifier, upto) if begin.seq <= upto else None
        return replace(found, trim=trim, aged_upto=min(begin.seq, head.seq - 1))
    if isinstance(piece, Partition) and piece.upper <= head.seq and (last := newest(connection, piece.identifier)):
        due = min(due, last.at + timedelta(seconds=keep))
    return replace(found, due=due)


def _aged(connection: Connection, parts: Sequence[Partition], head: int, old: datetime) -> list[Partition]:
    """The first partitions that are full and whose newest event is older than that."""
    aged: list[Partition] = []
    for each in parts:
        if each.upper > head:
            break
        last = newest(connection, each.identifier)
        if last is not None and last.at >= old:
            break
        aged.append(each)
    return aged


def newest(connection: Connection, of: sql.Identifier, upto: int = 2**63 - 1) -> Event | None:
    """The last event of a table or partition up to a seq."""
    return queries.one(
        connection, Event, sql.SQL(statement("log.retention", "newest_event")).format(events=of), {"upto": upto}
    )


def first(connection: Connection, of: sql.Identifier, since: int) -> Event | None:
    """The first event of a table or partition from a seq on, below which there is none."""
    return queries.one(
        connection, Event, sql.SQL(statement("log.retention", "oldest_event")).format(events=of), {"since": since}
    )


def is_old(connection: Connection, event: Event, keep: float) -> bool:
    """Whether it arrived more than `keep` seconds ago, by the database's clock."""
    return bool(
        queries.value(connection, "select clock_timestamp() - %s > make_interval(secs => %s)", (event.at, keep))
    )
