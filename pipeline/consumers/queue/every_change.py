"""Items of records consumers that do not collapse: each event is one, and waits behind the earlier ones of its row."""

from __future__ import annotations

from functools import cache

from psycopg import sql

from pipeline.config import patterns
from pipeline.consumers.queue import items
from pipeline.consumers.queue.consumers import RecordsConsumer
from pipeline.postgres.connections import Connection

_EVENTS = ("apply_1_seen", "apply_2_keyed", "every_3_items")
_GROUPS = {False: "every_4_alone", True: "every_4_grouped"}
_ADD = ("every_5_lines", "every_6_add")
_SETTLE = ("every_3_unsure", "every_5_lines", "every_6_settle")
"""Parts of one `with`, in its order; the last one ends with the select."""


def apply(connection: Connection, events: sql.Identifier, consumer: RecordsConsumer, upto: int) -> int:
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
