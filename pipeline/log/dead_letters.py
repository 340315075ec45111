"""Dead letters: changes that could not be written to an events table, kept as they were staged, with the cause."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg import sql

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn

STATES = ("parked", "retrying", "retried", "discarded")
_COUNT_DEAD_LETTERS = "select state, count(*) from pipeline.dead_letters group by state"
"""Count the dead letters in each state."""
_DISCARD_DEAD_LETTERS = """\
update pipeline.dead_letters set state = 'discarded', updated_at = clock_timestamp()
where state = 'parked' and (%(ids)s::bigint[] is null or id = any (%(ids)s))
returning id
"""
"""Give up parked dead letters; those that are being retried stay as they are."""
_MARK_RETRIED = """\
update pipeline.dead_letters
set state = 'retried', retried_seq = %(seq)s, attempts = attempts + 1, updated_at = clock_timestamp()
where id = %(id)s
"""
"""Record that a dead letter was written to the log."""
_REQUEST_RETRY = """\
update pipeline.dead_letters set state = 'retrying', updated_at = clock_timestamp()
where state = 'parked' and (%(ids)s::bigint[] is null or id = any (%(ids)s))
returning id
"""
"""Ask for parked dead letters to be written again."""
_SET_DEAD_LETTER_EVENT = "update pipeline.dead_letters set events_table = %(table)s, seq = %(seq)s where id = %(id)s"
"""Store the event that stands in a dead letter's place."""


@dataclass(frozen=True)
class DeadLetter:
    """One dead letter, without its values.

    `seq` belongs to the event that stands in its place, and `retried_seq` to the event with its values after a retry.
    """

    id: int
    state: str
    source_epoch: int
    commit_lsn: lsn.Shown
    commit_idx: int
    table: str
    action: str
    record_pk: str
    events_table: str
    seq: int
    retried_seq: int | None
    cause: str
    sqlstate: str
    attempts: int
    parked_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class RequestedRetry:
    """A dead letter that a user has asked to write to its events table again."""

    id: int
    epoch: int
    events_table: str


def park(
    connection: Connection,
    source: uuid.UUID,
    epoch: int,
    rows: sql.Identifier,
    ordinal: int,
    cause: str,
    sqlstate: str,
) -> int:
    """Keep one row of `rows` (columns as in wal_events), by its ordinal; returns the dead letter's id."""
    query = sql.SQL(statement("log", "park_row")).format(rows=rows)
    values = {"source": source, "epoch": epoch, "ordinal": ordinal, "cause": cause, "sqlstate": sqlstate}
    row = connection.execute(query, values).fetchone()
    assert row is not None  # noqa: S101  insert … returning
    return int(row[0])


def set_event(connection: Connection, dead_letter: int, events_table: str, seq: int) -> None:
    """Store which event stands in a dead letter's place."""
    values = {"id": dead_letter, "table": events_table, "seq": seq}
    connection.execute(_SET_DEAD_LETTER_EVENT, values)


def counts(connection: Connection) -> dict[str, int]:
    """Return the number of dead letters in each state."""
    counted: dict[str, int] = dict(connection.execute(_COUNT_DEAD_LETTERS).fetchall())
    return {state: counted.get(state, 0) for state in STATES}


def find(connection: Connection, state: str | None, limit: int | None = None) -> list[DeadLetter]:
    """Return dead letters of one state, or all, in the order of the log."""
    return queries.rows(connection, DeadLetter, statement("log", "list_dead_letters"), {"state": state, "limit": limit})


def request_retry(connection: Connection, ids: Sequence[int] | None) -> list[int]:
    """Ask the shuffler to write parked dead letters again (None: all); returns their ids."""
    return [row[0] for row in connection.execute(_REQUEST_RETRY, {"ids": _list(ids)})]


def discard(connection: Connection, ids: Sequence[int] | None) -> list[int]:
    """Give up parked dead letters (None: all): they stay for the record and are never retried; returns their ids."""
    return [row[0] for row in connection.execute(_DISCARD_DEAD_LETTERS, {"ids": _list(ids)})]


def claim_retries(connection: Connection, source: uuid.UUID, limit: int) -> list[RequestedRetry]:
    """Lock and return the dead letters that the shuffler was asked to write again, in the order of the log."""
    return queries.rows(
        connection, RequestedRetry, statement("log", "claim_retries"), {"source": source, "limit": limit}
    )


def mark_retried(connection: Connection, dead_letter: int, seq: int) -> None:
    """Record that this transaction wrote a dead letter to the log as the event `seq`."""
    connection.execute(_MARK_RETRIED, {"id": dead_letter, "seq": seq})


def mark_failed(connection: Connection, dead_letter: int, cause: str, sqlstate: str) -> None:
    """Park a dead letter again that still cannot be written."""
    values = {"id": dead_letter, "cause": cause, "sqlstate": sqlstate}
    connection.execute(statement("log", "park_again"), values)


def _list(ids: Sequence[int] | None) -> list[int] | None:
    return None if ids is None else list(ids)
