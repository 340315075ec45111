"""Items of records consumers: one per row of a table, with its last change, until a client has acknowledged it."""

from __future__ import annotations

from functools import cache

from psycopg import sql

from pipeline.config import patterns
from pipeline.postgres.connections import Connection
from pipeline.postgres.connections import sql as statement
from pipeline.readers.queue.consumers import RecordsConsumer


def fold(connection: Connection, events: sql.Identifier, consumer: RecordsConsumer, upto: int) -> int:
    """Bring a claimed consumer's items from its `folded_seq` to `upto`; returns how many have changed.

    Call it in a transaction. It waits for nobody: changes of items that another transaction holds are put aside, and
    are part of the next fold.
    """
    connection.execute(statement("readers.queue", "plan_fold"))
    values = {
        "consumer": consumer.id,
        "after": consumer.folded_seq,
        "upto": upto,
        "patterns": patterns.likes(consumer.tables),
        "actions": consumer.actions,
        "group_by": consumer.group_by,
    }
    row = connection.execute(_fold_query(events.as_string(connection)), values, prepare=True).fetchone()
    assert row is not None  # noqa: S101  aggregates
    changed, tables, seqs = row
    if tables:
        outdated = {"consumer": consumer.id, "tables": tables, "seqs": seqs}
        changed += connection.execute(statement("readers.queue", "remove_outdated"), outdated).rowcount
    return int(changed)


def chunk_end(connection: Connection, events: sql.Identifier, after: int, limit: int) -> int | None:
    """The seq of the last of at most so many events after a seq; None when there are none."""
    query = sql.SQL(statement("readers.queue", "end_chunk")).format(events=events)
    row = connection.execute(query, {"after": after, "limit": limit}).fetchone()
    return None if row is None or row[0] is None else int(row[0])


@cache
def _fold_query(events: str) -> bytes:
    """Composed once: it is long, and runs for every consumer at every move."""
    return statement("readers.queue", "fold_events").format(events=events).encode()
