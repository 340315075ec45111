"""Turns events of the log into items of records consumers: one chunk of events for all consumers at the same position.

Each chunk is a transaction that also moves its consumers' positions, so the log never waits for a queue. Its commit
does not wait for the disk: a chunk that a crash undoes is applied again, and an acknowledgement flushes earlier chunks.

A chunk is *odd* for a consumer if the single statement of `apply_plain` cannot apply it: for instance, it contains a
truncate, a changed key or a row without a key. Odd chunks take several steps, for one consumer at a time.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from psycopg import sql
from psycopg.types.json import Jsonb

from pipeline.config import patterns
from pipeline.consumers.queue import consumers, items
from pipeline.consumers.queue.consumers import RecordsConsumer
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

MAX_CHUNK_EVENTS, MIN_CHUNK_EVENTS = 5_000, 300
"""The most events of one chunk, and the number below which no chunk is shortened to save time."""
MAX_CHUNK_CONSUMERS = 10
_SECONDS_PER_EVENT, _SECONDS_PER_OTHER = 15e-6, 6e-6
"""Estimates: seconds to apply an event for the first consumer of a chunk, and for each other consumer of it."""
_DEFAULT_HEAD = "select coalesce(last_seq, 0) from pipeline.shuffle_progress where source_id = %(source)s"
"""SQL for the newest committed seq of the default events table."""
_TABLE_HEAD = """\
select coalesce(last_seq, 0) from pipeline.events_tables where source_id = %(source)s and name = %(name)s
"""
"""SQL for the newest committed seq of another events table."""

_EVENT_STEPS = ("apply_1_events", "apply_2_keys", "every_3_items")
_GROUP_STEPS = {False: "every_4_no_groups", True: "every_4_groups"}
_ADD_STEPS = ("every_5_lines", "every_6_add_items")
_SETTLE_STEPS = ("every_3_unsure_items", "every_5_lines", "every_6_settle_items")
"""The parts of one `with`, in this order; the last one ends with the select."""


class CatchUpResult(IntEnum):
    """How much was applied; true if anything was. `LAGGING`: only a part of the log, so there is more to apply."""

    NOTHING = 0
    ALL = 1
    LAGGING = 2


class _QueuePosition(NamedTuple):
    """The position of consumers in an events table. `single`: the id of a consumer that shares no chunk with others."""

    events_table: str | None
    seq: int
    single: int | None


def catch_up(
    connection: Connection,
    source: uuid.UUID,
    default: EventsTable,
    records_consumers: Sequence[RecordsConsumer],
    within: float = 0.1,
    odd: set[int] | None = None,
) -> CatchUpResult:
    """Apply a chunk for each lagging consumer, and the changes that were deferred while items were locked.

    `records_consumers`: all of them; the one that lags most comes first. A consumer that an administrative function has
    locked is skipped. `default`: the events table of consumers that name none. After `within` seconds no other chunk
    begins. `odd`: the ids of consumers whose last chunk was odd; the caller keeps this set for the next call.
    """
    if not records_consumers:
        return CatchUpResult.NOTHING
    tables = {consumer.events_table for consumer in records_consumers}
    heads = {table: _find_head(connection, source, table) for table in tables}
    return _CatchUp(connection, default, heads, within, set() if odd is None else odd).run(records_consumers)


def _find_head(connection: Connection, source: uuid.UUID, table: str | None) -> int:
    """Return the newest committed seq of an events table. `table` None: the default one."""
    query = _DEFAULT_HEAD if table is None else _TABLE_HEAD
    return int(queries.value(connection, query, {"source": source, "name": table}, default=0))


class _CatchUp:
    """One call of `catch_up`. Consumers at the same position share chunks."""

    def __init__(
        self,
        connection: Connection,
        default: EventsTable,
        heads: Mapping[str | None, int],
        within: float,
        odd: set[int],
    ) -> None:
        self._connection, self._default, self._heads, self._odd = connection, default, heads, odd
        self._within, self._until = within, time.monotonic() + within
        self._by_position = defaultdict[_QueuePosition, list[RecordsConsumer]](list)
        self._has_applied = self._lags = False

    def run(self, records_consumers: Sequence[RecordsConsumer]) -> CatchUpResult:
        for consumer in records_consumers:
            table, after = consumer.events_table, consumer.applied_seq
            if consumer.has_deferred or after < self._heads[table]:
                is_single = consumer.id in self._odd or not can_be_plain(consumer)
                self._by_position[_QueuePosition(table, after, consumer.id if is_single else None)].append(consumer)
        while self._by_position:
            position = min(self._by_position, key=lambda position: position.seq)
            lagging = self._by_position.pop(position)
            for at in range(0, len(lagging), MAX_CHUNK_CONSUMERS):
                self._advance_consumers(position, lagging[at : at + MAX_CHUNK_CONSUMERS])
        if not self._has_applied:
            return CatchUpResult.NOTHING
        return CatchUpResult.LAGGING if self._lags else CatchUpResult.ALL

    def _advance_consumers(self, position: _QueuePosition, lagging: list[RecordsConsumer]) -> None:
        """Apply a chunk. It ends at the next position of other consumers at the latest, to share their next chunk."""
        if self._has_applied and time.monotonic() >= self._until and not lagging[0].has_deferred:
            self._lags = True
            return
        others = (
            other.seq
            for other in self._by_position
            if other.events_table == position.events_table and other.single is position.single is None
        )
        end = position._replace(seq=min(others, default=self._heads[position.events_table]))
        reached = self._apply_chunk(position, lagging, end.seq)
        if end in self._by_position:
            self._by_position[end] += reached
        self._lags |= len(reached) < len(lagging)

    def _apply_chunk(self, position: _QueuePosition, lagging: list[RecordsConsumer], end: int) -> list[RecordsConsumer]:
        """Return the consumers that have reached `end`; none if another session has locked them."""
        table = self._default if position.events_table is None else EventsTable.parse(position.events_table)
        with self._connection.transaction():
            claimed = consumers.claim(self._connection, lagging)
            if not claimed:
                return []
            after = min(consumer.applied_seq for consumer in claimed)
            claimed = [consumer for consumer in claimed if consumer.applied_seq == after]  # the others were reset
            upto = self._find_end(table, after, max(after, end), len(claimed))
            changed = self._apply_events(table, claimed, upto, position.single is not None)
            if upto > after:
                consumers.set_applied_seq(self._connection, claimed, upto)
            if changed:
                consumers.wake_clients(self._connection, changed)
        self._has_applied |= bool(changed) or upto > after
        return claimed if upto == end else []

    def _find_end(self, table: EventsTable, after: int, end: int, number: int) -> int:
        """Return the last seq of a chunk for this number of consumers, at most `end`."""
        seconds = _SECONDS_PER_EVENT + _SECONDS_PER_OTHER * (number - 1)
        most = min(MAX_CHUNK_EVENTS, max(MIN_CHUNK_EVENTS, int(self._within / seconds)))
        if end - after <= most:
            return end
        return min(end, items.find_chunk_end(self._connection, table.identifier, after, most) or end)

    def _apply_events(
        self, table: EventsTable, claimed: list[RecordsConsumer], upto: int, is_single: bool
    ) -> list[RecordsConsumer]:
        """Return the consumers whose clients may have to be woken."""
        rest, changed = claimed, list[RecordsConsumer]()
        if not is_single:
            applied = apply_plain(self._connection, table.identifier, claimed, upto)
            rest = [consumer for consumer in claimed if consumer.id in applied.odd]
            changed = [consumer for consumer in claimed if consumer.id in applied.changed]
        return changed + [consumer for consumer in rest if self._apply_odd(table, consumer, upto)]

    def _apply_odd(self, table: EventsTable, consumer: RecordsConsumer, upto: int) -> bool:
        if not consumer.collapse:
            return apply_every_change(self._connection, table.identifier, consumer, upto) > 0
        changed, is_odd = items.apply_events(self._connection, table.identifier, consumer, upto)
        if is_odd:
            self._odd.add(consumer.id)
        else:
            self._odd.discard(consumer.id)
        return changed > 0


@dataclass(frozen=True)
class AppliedChunk:
    """The ids of consumers that have new items, and of those for which the chunk is odd."""

    changed: list[int]
    odd: list[int]


def can_be_plain(consumer: RecordsConsumer) -> bool:
    """Return False if every chunk is odd for this consumer, because it groups items or has deferred changes."""
    return consumer.collapse and not consumer.group_by and not consumer.has_deferred


def apply_plain(
    connection: Connection, events: sql.Identifier, consumers: Sequence[RecordsConsumer], upto: int
) -> AppliedChunk:
    """Apply the log up to `upto` to the items of these consumers, which are claimed and have the same `applied_seq`.

    Skips the consumers to which one statement cannot apply the chunk: `items.apply_events` does it. Call this function
    in the transaction that has claimed the consumers. It waits for no lock: changes of locked items are deferred.
    """
    values = {"filters": list_filters(consumers), "after": consumers[0].applied_seq, "upto": upto}
    query = compose_plain(events.as_string(connection))
    ((changed, odd),) = connection.execute(query, values, prepare=True).fetchall()
    return AppliedChunk(changed, odd)


def list_filters(consumers: Sequence[RecordsConsumer]) -> Jsonb:
    """Return each filter once, with the ids of its consumers, so that its events are sorted only once."""
    ids_of = defaultdict[tuple[tuple[str, ...], tuple[str, ...]], list[int]](list)
    for consumer in consumers:
        ids_of[tuple(patterns.likes(consumer.tables)), tuple(consumer.actions)].append(consumer.id)
    return Jsonb(
        [{"consumers": ids, "patterns": tables, "actions": actions} for (tables, actions), ids in ids_of.items()]
    )


@cache
def compose_plain(events: str) -> bytes:
    """Return the statement of `apply_plain`. `events`: the quoted name of the events table."""
    text = statement("consumers.queue", "apply_plain")
    return text.format(events=events, change_item=items.change_item_clause()).encode()


def apply_every_change(connection: Connection, events: sql.Identifier, consumer: RecordsConsumer, upto: int) -> int:
    """Add the log from a claimed consumer's `applied_seq` to `upto` as items; return for how many to wake clients.

    Call this function in the transaction that has claimed the consumer. It waits for no lock: if another transaction
    has locked items that may be in front of a new item, the new item is blocked, and the next call checks it again.
    """
    values = {
        "consumer": consumer.id,
        "after": consumer.applied_seq,
        "upto": upto,
        "patterns": patterns.likes(consumer.tables),
        "actions": consumer.actions,
        "group_by": consumer.group_by,
    }
    available = 0
    if consumer.has_deferred:
        available += _execute_count(connection, _compose_settle(), values)
    if upto > consumer.applied_seq:
        query = _compose_add(events.as_string(connection), bool(consumer.group_by))
        available += _execute_count(connection, query, values)
    return available


def _execute_count(connection: Connection, query: bytes, values: dict[str, object]) -> int:
    ((count,),) = connection.execute(query, values, prepare=True).fetchall()
    return int(count)


@cache
def _compose_add(events: str, grouped: bool) -> bytes:
    """Return the steps as one statement, because each step reads the result of the previous one."""
    return items.compose_steps(events, (*_EVENT_STEPS, _GROUP_STEPS[grouped], *_ADD_STEPS))


@cache
def _compose_settle() -> bytes:
    return items.compose_steps("", _SETTLE_STEPS)
