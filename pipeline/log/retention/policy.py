"""Plan which events are old enough to be dropped, and record drops. An event's age counts from its arrival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from psycopg import sql

from pipeline.log import partitions
from pipeline.log.partitions import EventsPartition
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

DELETE_ROWS_AFTER = 1.5
"""The age, in retentions, from which the first events of a partition are deleted row by row: it will take a while
until the whole partition is old enough."""
_FIND_DROPPED = """\
select dropped_below as below, dropped_at as at, dropping::bigint as dropping, dropping_since as since
from pipeline.retention where events_table = %(table)s
"""
"""Read up to where an events table was dropped, and the partition that is being dropped."""
_UNDO_DROP = """\
update pipeline.retention
set dropped_below = %(below)s, dropping = null, dropping_name = null, dropping_since = null
where events_table = %(table)s
"""
"""Undo a recorded drop: a reader needs the partition, and nothing of it was dropped yet."""


@dataclass(frozen=True)
class DropRecord:
    """A record that all below seq `below` is dropped, or will be.

    `dropping`: oid of the partition whose drop began at `since`.
    """

    below: int = 1
    at: datetime | None = None
    dropping: int | None = None
    since: datetime | None = None


@dataclass(frozen=True)
class EventArrival:
    """An event's seq and when it arrived."""

    seq: int
    at: datetime


@dataclass(frozen=True)
class RowDeletion:
    """Events of one table, or of one partition, to delete row by row: those up to `upto` that are old enough."""

    of: sql.Identifier
    upto: int


@dataclass(frozen=True)
class RetentionPlan:
    """The events that may be dropped now: whole partitions, oldest first, then rows.

    `aged_upto`: the seq up to which events are old enough, whether or not a reader needs them. `due`: when the next
    events become old enough, if that is known. `oldest`: the first event in the table.
    """

    now: datetime
    drops: Sequence[EventsPartition] = ()
    deletion: RowDeletion | None = None
    aged_upto: int = 0
    due: datetime | None = None
    oldest: EventArrival | None = None


def dropped(connection: Connection, table: EventsTable) -> DropRecord:
    """Return the record of the drops of a table so far."""
    return queries.one(connection, DropRecord, _FIND_DROPPED, {"table": str(table)}) or DropRecord()


def record(connection: Connection, table: EventsTable, below: int, partition: EventsPartition | None = None) -> None:
    """Record that every seq below `below` is dropped, before it is: a reader below must get an error, never a gap."""
    oid, name = (partition.oid, str(partition)) if partition else (None, None)
    values = {"table": str(table), "below": below, "oid": oid, "name": name}
    connection.execute(statement("log.retention", "record_drop"), values)


def undo_record(connection: Connection, table: EventsTable, before: DropRecord) -> None:
    """Undo `record` for a partition of which nothing was dropped yet."""
    connection.execute(_UNDO_DROP, {"table": str(table), "below": before.below})


def plan(connection: Connection, table: EventsTable, keep: float, needed_after: int) -> RetentionPlan:
    """Plan what to drop if events are kept for `keep` seconds and readers need every seq above `needed_after`.

    The newest event is never dropped, nor is the partition that the shuffler writes to.
    """
    row = connection.execute("select clock_timestamp()").fetchone()
    head = newest(connection, table.identifier)
    below = dropped(connection, table).below
    oldest = first(connection, table.identifier, below)
    assert row is not None  # noqa: S101  a function call
    if head is None or oldest is None:
        return RetentionPlan(row[0])
    old = row[0] - timedelta(seconds=keep)
    parts = partitions.attached(connection, table)
    aged = _aged(connection, parts, head.seq, old)
    drops = [each for each in aged if each.upper - 1 <= needed_after]
    found = RetentionPlan(row[0], drops, None, aged[-1].upper - 1 if aged else 0, None, oldest)
    if len(drops) < len(aged):
        return found
    rest = parts[len(aged)] if parts else table
    return _with_rest(connection, found, rest, head, min(needed_after, head.seq - 1), keep)


def _with_rest(
    connection: Connection,
    found: RetentionPlan,
    piece: EventsPartition | EventsTable,
    head: EventArrival,
    upto: int,
    keep: float,
) -> RetentionPlan:
    """Return the plan with the events of the first partition, or table, that cannot be dropped as a whole."""
    begin = first(connection, piece.identifier, found.oldest.seq if found.oldest else 1)
    if begin is None:
        return found
    slack = DELETE_ROWS_AFTER if isinstance(piece, EventsPartition) else 1.0
    due = begin.at + timedelta(seconds=keep * slack)
    if due < found.now:
        deletion = RowDeletion(piece.identifier, upto) if begin.seq <= upto else None
        return replace(found, deletion=deletion, aged_upto=min(begin.seq, head.seq - 1))
    if (
        isinstance(piece, EventsPartition)
        and piece.upper <= head.seq
        and (last := newest(connection, piece.identifier))
    ):
        due = min(due, last.at + timedelta(seconds=keep))
    return replace(found, due=due)


def _aged(connection: Connection, parts: Sequence[EventsPartition], head: int, old: datetime) -> list[EventsPartition]:
    """Return the first partitions that are full and whose newest event arrived before `old`."""
    aged: list[EventsPartition] = []
    for each in parts:
        if each.upper > head:
            break
        last = newest(connection, each.identifier)
        if last is not None and last.at >= old:
            break
        aged.append(each)
    return aged


def newest(connection: Connection, of: sql.Identifier, upto: int = 2**63 - 1) -> EventArrival | None:
    """Return the last event of a table or partition up to a seq."""
    return queries.one(
        connection, EventArrival, sql.SQL(statement("log.retention", "newest_event")).format(events=of), {"upto": upto}
    )


def first(connection: Connection, of: sql.Identifier, since: int) -> EventArrival | None:
    """Return the first event of a table or partition; none is below the seq `since`."""
    return queries.one(
        connection,
        EventArrival,
        sql.SQL(statement("log.retention", "oldest_event")).format(events=of),
        {"since": since},
    )


def is_old(connection: Connection, event: EventArrival, keep: float) -> bool:
    """Return True if the event arrived more than `keep` seconds ago, by the database's clock."""
    return bool(
        queries.value(connection, "select clock_timestamp() - %s > make_interval(secs => %s)", (event.at, keep))
    )
