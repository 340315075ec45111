"""Chunks of the log without anything odd become items of several consumers, for whom the events are read once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from psycopg import sql
from psycopg.types.json import Jsonb

from pipeline.config import patterns
from pipeline.consumers.queue import items
from pipeline.consumers.queue.consumers import RecordsConsumer
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class Applied:
    """Ids of consumers: those that have something new, and those for which the chunk is odd."""

    changed: list[int]
    odd: list[int]


def may_be_plain(consumer: RecordsConsumer) -> bool:
    """Whether it is worth to ask: with groups, or with what is deferred, every chunk is odd."""
    return consumer.collapse and not consumer.group_by and not consumer.has_deferred


def apply(connection: Connection, events: sql.Identifier, consumers: Sequence[RecordsConsumer], upto: int) -> Applied:
    """Apply the log up to `upto` to the items of these consumers, which are claimed and have the same `applied_seq`.

    Nothing is done for those for which it is odd: `items.apply` does that. Call it in the transaction that has claimed
    them. It waits for no lock: changes of items that another transaction holds are deferred.
    """
    values = {"wishes": wishes(consumers), "after": consumers[0].applied_seq, "upto": upto}
    ((changed, odd),) = connection.execute(query(events.as_string(connection)), values, prepare=True).fetchall()
    return Applied(changed, odd)


def wishes(consumers: Sequence[RecordsConsumer]) -> Jsonb:
    """What they want: one for all that want the same, whose events are then sorted once."""
    wanting = defaultdict[tuple[tuple[str, ...], tuple[str, ...]], list[int]](list)
    for consumer in consumers:
        wanting[tuple(patterns.likes(consumer.tables)), tuple(consumer.actions)].append(consumer.id)
    return Jsonb(
        [{"consumers": ids, "patterns": tables, "actions": actions} for (tables, actions), ids in wanting.items()]
    )


@cache
def query(events: str) -> bytes:
    """The statement, for the events table of that quoted name."""
    text = statement("consumers.queue", "apply_plain")
    return text.format(events=events, change_item=items.change_item()).encode()
