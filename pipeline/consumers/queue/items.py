"""Items of records consumers that collapse: one for each row, with its last change, until a client acknowledges it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import LiteralString

from psycopg import sql

from pipeline.config import patterns
from pipeline.consumers.queue.consumers import RecordsConsumer
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_STEPS = ("apply_1_events", "apply_2_keys", "apply_3_items")
"""The parts of one `with`, in this order; the last one ends with the select."""
_KNOWN_GROUP = {
    False: "null::text",
    True: "(array_agg(i.group_id) filter (where i.group_id is not null) over w)[1]",
}
"""SQL of step 3 for the newest known group of an item, by whether the consumer groups items."""
_ACROSS_TRUNCATE = """\
when exists (select from barriers b where b.source_table_oid = r.source_table_oid
    and b.seq > r.queued_seq and b.seq < excluded.seq) then excluded.seq
"""
"""An SQL case: the item moves to the place of its change if a truncate is between, because a truncate waits for all
items before it. The truncates are in `barriers`."""


def apply_events(
    connection: Connection, events: sql.Identifier, consumer: RecordsConsumer, upto: int
) -> tuple[int, bool]:
    """Apply the log from a claimed consumer's `applied_seq` to `upto` to its items; the events may be of any kind.

    Returns the number of changed items, and True if an event was odd, so that `queue_apply.apply_plain` cannot apply
    it. Call this function in the transaction that has claimed the consumer. It waits for no lock: changes of items that
    another transaction has locked are deferred until the next call.
    """
    values = {
        "consumer": consumer.id,
        "after": consumer.applied_seq,
        "upto": upto,
        "patterns": patterns.likes(consumer.tables),
        "actions": consumer.actions,
        "group_by": consumer.group_by,
    }
    text = _compose_apply(events.as_string(connection), bool(consumer.group_by))
    ((changed, tables, seqs, is_odd),) = connection.execute(text, values, prepare=True).fetchall()
    if tables:
        outdated = {"consumer": consumer.id, "tables": tables, "seqs": seqs}
        changed += connection.execute(statement("consumers.queue", "remove_outdated"), outdated).rowcount
    return int(changed), is_odd


def find_chunk_end(connection: Connection, events: sql.Identifier, after: int, limit: int) -> int | None:
    """Return the seq of the last of the next `limit` events after a seq; None if fewer events follow."""
    query = sql.SQL(statement("consumers.queue", "chunk_end")).format(events=events)
    row = connection.execute(query, {"after": after, "limit": limit}).fetchone()
    return None if row is None else int(row[0])


@cache
def _compose_apply(events: str, grouped: bool) -> bytes:
    """Return the steps as one statement. The result is cached: it is long, and runs for each consumer and chunk.

    It is one statement because each step reads the result of the previous one, and the step that writes must lock.
    """
    return compose_steps(events, _STEPS, grouped=grouped)


def compose_steps(events: str, steps: Iterable[LiteralString], *, grouped: bool = False) -> bytes:
    """Return one statement of these steps, the parts of a `with`. `events`: the quoted name of the events table."""
    text = ",\n".join(statement("consumers.queue", step) for step in steps)
    return f"with {text}".format(
        events=events,
        change_item=change_item_clause(_ACROSS_TRUNCATE),
        known_group=_KNOWN_GROUP[grouped],
        group_of_record=_group_of_record("e.record"),
        old_key=key_of_record("was.record", "k.key_columns", "k.columns"),
        old_group=_group_of_record("was.record"),
    ).encode()


def change_item_clause(across_truncate: str = "") -> str:
    """Return the `on conflict` clause that changes items already in the queue, for an `insert` of items.

    `across_truncate`: the case _ACROSS_TRUNCATE, if the statement has `barriers`.
    """
    return statement("consumers.queue", "change_item").format(across_truncate=across_truncate)


def key_of_record(record: str, names: str, columns: str) -> str:
    """Return a query for a row's `record_pk`, from SQL expressions for the parameters of key_of_record.sql."""
    return statement("log", "key_of_record").format(record=record, names=names, columns=columns)


def _group_of_record(record: str) -> str:
    return statement("consumers.queue", "group_of_record").format(record=record)
