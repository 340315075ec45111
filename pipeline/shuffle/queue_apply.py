"""Events become items of records consumers: in the transaction that moves them, or later, a chunk at a time."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.readers.queue import consumers, items
from pipeline.readers.queue.consumers import RecordsConsumer

MOST_EVENTS = 100_000
"""A transaction that moves more leaves them to the chunks, so that readers do not wait for consumers."""
CHUNK_EVENTS = 10_000
"""Events that a consumer which is behind is given between two moves."""


def fold_moved(connection: Connection, table: EventsTable, before: int, moved: int, last: int) -> None:
    """In the transaction that has moved the events after the seq `before` up to `last`: bring consumers with it.

    Those that lack some of what is before stay behind, and so do those that an administrative function holds.
    """
    if not 0 < moved <= MOST_EVENTS:
        return
    here = [consumer for consumer in consumers.claim(connection) if consumer.applied_seq >= before]
    if not here:
        return
    changed = [consumer for consumer in here if items.apply(connection, table.identifier, consumer, last)]
    consumers.set_applied(connection, here, last)
    if changed:
        consumers.wake(connection, changed)


def catch_up(connection: Connection, source: uuid.UUID, table: EventsTable, there: Sequence[RecordsConsumer]) -> bool:
    """Between moves: one chunk for the consumer that is furthest behind, and what clients held and have let go.

    `there`: the consumers as they are. Returns whether anything has come of it; then there may be more.
    """
    if not there:
        return False
    head = queries.value(connection, statement("shuffle", "last_moved"), {"source": source}, default=0)
    progress = False
    behind = 0
    for consumer in there:
        is_behind = consumer.applied_seq < head
        if consumer.has_deferred or (is_behind and not behind):
            progress |= _fold_chunk(connection, table, consumer, head)
            behind += is_behind
    return progress


def _fold_chunk(connection: Connection, table: EventsTable, consumer: RecordsConsumer, head: int) -> bool:
    with connection.transaction():
        claimed = consumers.claim_one(connection, consumer)
        if claimed is None:
            return False
        upto = head
        if claimed.applied_seq < head:
            upto = items.chunk_end(connection, table.identifier, claimed.applied_seq, CHUNK_EVENTS) or head
        changed = items.apply(connection, table.identifier, claimed, upto)
        if upto > claimed.applied_seq:
            consumers.set_applied(connection, [claimed], upto)
        if changed:
            consumers.wake(connection, [claimed])
    return changed > 0 or upto > claimed.applied_seq
