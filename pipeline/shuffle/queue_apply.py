"""Events become items of records consumers: in the transaction that moves them, or later, a chunk at a time."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.readers.queue import consumers, every_change, items
from pipeline.readers.queue.consumers import RecordsConsumer

MOST_EVENTS = 100_000
"""A transaction that moves more events leaves them to `catch_up`, so that readers do not wait for queues."""
CHUNK_EVENTS = 10_000
"""Events that are applied to a lagging consumer's queue between two moves."""


def apply_moved(connection: Connection, table: EventsTable, before: int, moved: int, last: int) -> None:
    """Apply the events after seq `before` up to `last` to the queues, in the transaction that has moved them.

    Consumers that lack earlier events are left to `catch_up`, and so are those that an administrative function has
    locked.
    """
    if not 0 < moved <= MOST_EVENTS:
        return
    current = [consumer for consumer in consumers.claim(connection) if consumer.applied_seq >= before]
    if not current:
        return
    changed = [consumer for consumer in current if _apply(connection, table, consumer, last)]
    consumers.set_applied(connection, current, last)
    if changed:
        consumers.wake(connection, changed)


def catch_up(
    connection: Connection, source: uuid.UUID, table: EventsTable, records_consumers: Sequence[RecordsConsumer]
) -> bool:
    """Between moves: apply one chunk for the first lagging consumer, and changes deferred while items were delivered.

    `records_consumers`: all of them; one that an administrative function has locked keeps nobody waiting. Returns
    whether anything was applied; then there may be more.
    """
    if not records_consumers:
        return False
    head = queries.value(connection, statement("shuffle", "last_moved"), {"source": source}, default=0)
    progress = False
    behind = 0
    for consumer in records_consumers:
        is_behind = consumer.applied_seq < head
        if consumer.has_deferred or (is_behind and not behind):
            applied = _apply_chunk(connection, table, consumer, head)
            progress |= bool(applied)
            behind += is_behind and applied is not None
    return progress


def _apply_chunk(connection: Connection, table: EventsTable, consumer: RecordsConsumer, head: int) -> bool | None:
    """Whether anything was applied; None: somebody has locked the consumer."""
    with connection.transaction():
        claimed = consumers.claim_one(connection, consumer)
        if claimed is None:
            return None
        upto = head
        if claimed.applied_seq < head:
            upto = items.chunk_end(connection, table.identifier, claimed.applied_seq, CHUNK_EVENTS) or head
        changed = _apply(connection, table, claimed, upto)
        if upto > claimed.applied_seq:
            consumers.set_applied(connection, [claimed], upto)
        if changed:
            consumers.wake(connection, [claimed])
    return changed > 0 or upto > claimed.applied_seq


def _apply(connection: Connection, table: EventsTable, consumer: RecordsConsumer, upto: int) -> int:
    """Returns how many items a client may have to be woken for."""
    apply = items.apply if consumer.collapse else every_change.apply
    return apply(connection, table.identifier, consumer, upto)
