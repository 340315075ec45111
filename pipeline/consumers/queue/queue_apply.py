"""Events of the log become items of records consumers, between two moves: a chunk at a time, for all that stand there.

Each chunk is a transaction with its consumers' position, so the log waits for none of it. Its commit does not wait for
the disk: what a crash forgets is applied again, and what a client has acknowledged has brought it to the disk before.
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

CHUNK_EVENTS, LEAST_EVENTS = 5_000, 300
"""The most events of one chunk, and the fewest that a chunk is made smaller for."""
TOGETHER = 10
"""The most consumers of one chunk."""
_SECONDS_AN_EVENT, _SECONDS_OF_EACH_MORE = 15e-6, 6e-6
_LAST_MOVED = "select coalesce(last_seq, 0) from pipeline.shuffle_progress where source_id = %(source)s"
"""The newest seq that is committed."""
_LAST_OF_TABLE = """\
select coalesce(last_seq, 0) from pipeline.events_tables where source_id = %(source)s and name = %(name)s
"""
"""The newest seq of one events table that is committed."""

_EVENTS = ("apply_1_seen", "apply_2_keyed", "every_3_items")
_GROUPS = {False: "every_4_alone", True: "every_4_grouped"}
_ADD = ("every_5_lines", "every_6_add")
_SETTLE = ("every_3_unsure", "every_5_lines", "every_6_settle")
"""Parts of one `with`, in its order; the last one ends with the select."""


class CatchUpResult(IntEnum):
    """What was applied; true if anything was. `LAGGING`: not all that was there, so that there is more."""

    NOTHING = 0
    ALL = 1
    LAGGING = 2


class _LogPlace(NamedTuple):
    """Where consumers stand: after which seq of which events table. `alone`: the id of one that goes on by itself."""

    events_table: str | None
    seq: int
    alone: int | None


def catch_up(
    connection: Connection,
    source: uuid.UUID,
    default: EventsTable,
    records_consumers: Sequence[RecordsConsumer],
    within: float = 0.1,
    odd: set[int] | None = None,
) -> CatchUpResult:
    """Apply a chunk for each lagging consumer, and changes deferred while items were delivered.

    `records_consumers`: all of them; those that lag most go first. One that an administrative function has locked keeps
    nobody waiting. `default`: what those read that name no events table. After `within` seconds no other chunk is
    begun. `odd`: ids of consumers whose last chunk was odd, which the caller keeps for the next call.
    """
    if not records_consumers:
        return CatchUpResult.NOTHING
    heads = {of: _head(connection, source, of) for of in {consumer.events_table for consumer in records_consumers}}
    return _CatchUp(connection, default, heads, within, set() if odd is None else odd).run(records_consumers)


def _head(connection: Connection, source: uuid.UUID, table: str | None) -> int:
    """The newest seq of an events table that is committed; None: of the default one."""
    query = _LAST_MOVED if table is None else _LAST_OF_TABLE
    return int(queries.value(connection, query, {"source": source, "name": table}, default=0))


class _CatchUp:
    """One call of it. Consumers that stand at one place are one group."""

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
        self._standing = defaultdict[_LogPlace, list[RecordsConsumer]](list)
        self._progress = self._lags = False

    def run(self, records_consumers: Sequence[RecordsConsumer]) -> CatchUpResult:
        for consumer in records_consumers:
            of, after = consumer.events_table, consumer.applied_seq
            if consumer.has_deferred or after < self._heads[of]:
                alone = consumer.id in self._odd or not may_be_plain(consumer)
                self._standing[_LogPlace(of, after, consumer.id if alone else None)].append(consumer)
        while self._standing:
            place = min(self._standing, key=lambda place: place.seq)
            group = self._standing.pop(place)
            for at in range(0, len(group), TOGETHER):
                self._go_on(place, group[at : at + TOGETHER])
        if not self._progress:
            return CatchUpResult.NOTHING
        return CatchUpResult.LAGGING if self._lags else CatchUpResult.ALL

    def _go_on(self, place: _LogPlace, group: list[RecordsConsumer]) -> None:
        """By a chunk, which ends where others stand, at the latest: those are one group with this one then."""
        if self._progress and time.monotonic() >= self._until and not group[0].has_deferred:
            self._lags = True
            return
        others = (
            other.seq
            for other in self._standing
            if other.events_table == place.events_table and other.alone is place.alone is None
        )
        end = place._replace(seq=min(others, default=self._heads[place.events_table]))
        reached = self._apply_chunk(place, group, end.seq)
        if end in self._standing:
            self._standing[end] += reached
        self._lags |= len(reached) < len(group)

    def _apply_chunk(self, place: _LogPlace, group: list[RecordsConsumer], end: int) -> list[RecordsConsumer]:
        """Returns those that have come to the end; nobody where somebody has locked them."""
        table = self._default if place.events_table is None else EventsTable.parse(place.events_table)
        with self._connection.transaction():
            claimed = consumers.claim(self._connection, group)
            if not claimed:
                return []
            after = min(consumer.applied_seq for consumer in claimed)
            claimed = [consumer for consumer in claimed if consumer.applied_seq == after]  # not who was reset meanwhile
            upto = self._upto(table, after, max(after, end), len(claimed))
            changed = self._apply(table, claimed, upto, place.alone is not None)
            if upto > after:
                consumers.set_applied(self._connection, claimed, upto)
            if changed:
                consumers.wake(self._connection, changed)
        self._progress |= bool(changed) or upto > after
        return claimed if upto == end else []

    def _upto(self, table: EventsTable, after: int, end: int, number: int) -> int:
        """Where a chunk for so many consumers ends."""
        seconds = _SECONDS_AN_EVENT + _SECONDS_OF_EACH_MORE * (number - 1)
        most = min(CHUNK_EVENTS, max(LEAST_EVENTS, int(self._within / seconds)))
        if end - after <= most:
            return end
        return min(end, items.chunk_end(self._connection, table.identifier, after, most) or end)

    def _apply(
        self, table: EventsTable, claimed: list[RecordsConsumer], upto: int, alone: bool
    ) -> list[RecordsConsumer]:
        """Returns those whose clients may have to be woken."""
        rest, changed = claimed, list[RecordsConsumer]()
        if not alone:
            applied = apply_plain(self._connection, table.identifier, claimed, upto)
            rest = [consumer for consumer in claimed if consumer.id in applied.odd]
            changed = [consumer for consumer in claimed if consumer.id in applied.changed]
        return changed + [consumer for consumer in rest if self._apply_odd(table, consumer, upto)]

    def _apply_odd(self, table: EventsTable, consumer: RecordsConsumer, upto: int) -> bool:
        if not consumer.collapse:
            return apply_every_change(self._connection, table.identifier, consumer, upto) > 0
        changed, is_odd = items.apply(self._connection, table.identifier, consumer, upto)
        if is_odd:
            self._odd.add(consumer.id)
        else:
            self._odd.discard(consumer.id)
        return changed > 0


@dataclass(frozen=True)
class AppliedChunk:
    """Ids of consumers: those that have something new, and those for which the chunk is odd."""

    changed: list[int]
    odd: list[int]


def may_be_plain(consumer: RecordsConsumer) -> bool:
    """Whether it is worth to ask: with groups, or with what is deferred, every chunk is odd."""
    return consumer.collapse and not consumer.group_by and not consumer.has_deferred


def apply_plain(
    connection: Connection, events: sql.Identifier, consumers: Sequence[RecordsConsumer], upto: int
) -> AppliedChunk:
    """Apply the log up to `upto` to the items of these consumers, which are claimed and have the same `applied_seq`.

    Nothing is done for those for which it is odd: `items.apply` does that. Call it in the transaction that has claimed
    them. It waits for no lock: changes of items that another transaction holds are deferred.
    """
    values = {"wishes": plain_wishes(consumers), "after": consumers[0].applied_seq, "upto": upto}
    ((changed, odd),) = connection.execute(plain_query(events.as_string(connection)), values, prepare=True).fetchall()
    return AppliedChunk(changed, odd)


def plain_wishes(consumers: Sequence[RecordsConsumer]) -> Jsonb:
    """What they want: one for all that want the same, whose events are then sorted once."""
    wanting = defaultdict[tuple[tuple[str, ...], tuple[str, ...]], list[int]](list)
    for consumer in consumers:
        wanting[tuple(patterns.likes(consumer.tables)), tuple(consumer.actions)].append(consumer.id)
    return Jsonb(
        [{"consumers": ids, "patterns": tables, "actions": actions} for (tables, actions), ids in wanting.items()]
    )


@cache
def plain_query(events: str) -> bytes:
    """The statement, for the events table of that quoted name."""
    text = statement("consumers.queue", "apply_plain")
    return text.format(events=events, change_item=items.change_item()).encode()


def apply_every_change(connection: Connection, events: sql.Identifier, consumer: RecordsConsumer, upto: int) -> int:
    """Add the log from a claimed consumer's `applied_seq` to `upto` as items; returns for how many to wake.

    Call it in the transaction that has claimed it. It waits for no lock: where another transaction holds what may be in
    front of an item, the item is there, and is looked at again in the next call.
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
        available += _count(connection, _settle_query(), values)
    if upto > consumer.applied_seq:
        available += _count(connection, _add_query(events.as_string(connection), bool(consumer.group_by)), values)
    return available


def _count(connection: Connection, query: bytes, values: dict[str, object]) -> int:
    ((count,),) = connection.execute(query, values, prepare=True).fetchall()
    return int(count)


@cache
def _add_query(events: str, grouped: bool) -> bytes:
    """The steps as one statement, since each reads the result of the one before; composed once, as it is long."""
    return items.compose(events, (*_EVENTS, _GROUPS[grouped], *_ADD))


@cache
def _settle_query() -> bytes:
    return items.compose("", _SETTLE)
