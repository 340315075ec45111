"""Events of the log become items of records consumers, between two moves: a chunk at a time, each consumer by itself.

Each chunk is a transaction with the consumer's position, so the log waits for none of it. Its commit does not wait for
the disk: what a crash forgets is applied again, and what a client has acknowledged has brought it to the disk before.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.readers.queue import consumers, every_change, items
from pipeline.readers.queue.consumers import RecordsConsumer

CHUNK_EVENTS, LEAST_EVENTS = 5_000, 300
"""The most events of one chunk, and the fewest that a chunk is made smaller for."""
_SECONDS_AN_EVENT = 15e-6


def catch_up(
    connection: Connection,
    source: uuid.UUID,
    default: EventsTable,
    records_consumers: Sequence[RecordsConsumer],
    within: float = 0.1,
) -> bool:
    """Apply a chunk for each lagging consumer, and changes deferred while items were delivered.

    `records_consumers`: all of them, those that lag most first; one that an administrative function has locked keeps
    nobody waiting. `default`: what those read that name no events table. After `within` seconds no other chunk is
    begun. Returns whether anything was applied; then there may be more.
    """
    if not records_consumers:
        return False
    until, most = time.monotonic() + within, min(CHUNK_EVENTS, max(LEAST_EVENTS, int(within / _SECONDS_AN_EVENT)))
    heads: dict[str | None, int] = {None: _head(connection, source, None)}
    progress, is_over = False, False
    for consumer in records_consumers:
        of = consumer.events_table
        if of not in heads:
            heads[of] = _head(connection, source, of)
        if consumer.has_deferred or (consumer.applied_seq < heads[of] and not is_over):
            table = default if of is None else EventsTable.parse(of)
            progress |= _apply_chunk(connection, table, consumer, heads[of], most)
            is_over = time.monotonic() >= until
    return progress


def _head(connection: Connection, source: uuid.UUID, table: str | None) -> int:
    """The newest seq of an events table that is committed; None: of the default one."""
    query = statement("shuffle", "last_moved") if table is None else statement("shuffle", "last_of_table")
    return int(queries.value(connection, query, {"source": source, "name": table}, default=0))


def _apply_chunk(connection: Connection, table: EventsTable, consumer: RecordsConsumer, head: int, most: int) -> bool:
    """Whether anything was applied; not where somebody has locked the consumer."""
    with connection.transaction():
        claimed = consumers.claim(connection, consumer)
        if claimed is None:
            return False
        upto = head
        if head - claimed.applied_seq > most:
            upto = items.chunk_end(connection, table.identifier, claimed.applied_seq, most) or head
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
