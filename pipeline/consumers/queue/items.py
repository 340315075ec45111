"""Items of records consumers that collapse: one per row, with its last change, until a client has acknowledged it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import LiteralString

from psycopg import sql

from pipeline.config import patterns
from pipeline.consumers.queue.consumers import RecordsConsumer
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_STEPS = ("apply_1_seen", "apply_2_keyed", "apply_3_write")
"""Parts of one `with`, in its order; the last one ends with the select."""
_KNOWN_GROUP = {
    False: "null::text",
    True: "(array_agg(i.group_id) filter (where i.group_id is not null) over w)[1]",
}
"""In step 3, the newest group that is known of an item."""
_ACROSS_TRUNCATE = """\
when exists (select from barriers b where b.source_table_oid = r.source_table_oid
    and b.seq > r.queued_seq and b.seq < excluded.seq) then excluded.seq
"""
"""But not across a truncate, which waits for all items before it: where there may be one, among `barriers`."""


def apply(connection: Connection, events: sql.Identifier, consumer: RecordsConsumer, upto: int) -> tuple[int, bool]:
    """Apply the log from a claimed consumer's `applied_seq` to `upto` to its items, whatever is in it.

    Returns how many have changed, and whether something was odd, for which `queue_apply.apply_plain` has no steps. Call
    it in the transaction that has claimed the consumer. It waits for no lock: changes of items that another transaction
    holds are deferred, and are part of the next call.
    """
    values = {
        "consumer": consumer.id,
        "after": consumer.applied_seq,
        "upto": upto,
        "patterns": patterns.likes(consumer.tables),
        "actions": consumer.actions,
        "group_by": consumer.group_by,
    }
    text = _apply_query(events.as_string(connection), bool(consumer.group_by))
    ((changed, tables, seqs, is_odd),) = connection.execute(text, values, prepare=True).fetchall()
    if tables:
        outdated = {"consumer": consumer.id, "tables": tables, "seqs": seqs}
        changed += connection.execute(statement("consumers.queue", "remove_outdated"), outdated).rowcount
    return int(changed), is_odd


def chunk_end(connection: Connection, events: sql.Identifier, after: int, limit: int) -> int | None:
    """The seq of the last of the next `limit` events after a seq; None when there are not so many."""
    query = sql.SQL(statement("consumers.queue", "end_chunk")).format(events=events)
    row = connection.execute(query, {"after": after, "limit": limit}).fetchone()
    return None if row is None else int(row[0])


@cache
def _apply_query(events: str, grouped: bool) -> bytes:
    """The steps as one statement. Composed once: it is long, and runs for every consumer at every transfer.

    One statement, because each step reads the result of the one before, and the one that writes must take the locks.
    """
    return compose(events, _STEPS, grouped=grouped)


def compose(events: str, steps: Iterable[LiteralString], *, grouped: bool = False) -> bytes:
    """One statement of these steps, which are parts of a `with`; `events`: the quoted name of the events table."""
    text = ",\n".join(statement("consumers.queue", step) for step in steps)
    return f"with {text}".format(
        events=events,
        change_item=change_item(_ACROSS_TRUNCATE),
        known_group=_KNOWN_GROUP[grouped],
        group_of_record=_group_of_record("e.record"),
        old_key=key_of_record("was.record", "k.key_columns", "k.columns"),
        old_group=_group_of_record("was.record"),
    ).encode()


def change_item(across_truncate: str = "") -> str:
    """How an `insert` of items goes on where they are there; `across_truncate`: what to look at where one may be."""
    return statement("consumers.queue", "change_item").format(across_truncate=across_truncate)


def key_of_record(record: str, names: str, columns: str) -> str:
    """A query for a row's `record_pk`, from SQL expressions for what key_of_record.sql needs."""
    return statement("log", "key_of_record").format(record=record, names=names, columns=columns)


def _group_of_record(record: str) -> str:
    return statement("consumers.queue", "group_of_record").format(record=record)
