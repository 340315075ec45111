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


@dataclass(frozen=True)
class Letter:
    """One of them, without its values. `seq`: of the event in its place; `retried_seq`: of the one with its values."""

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
class Retry:
    """A letter that is to be written again."""

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
    """Keep the row of `rows` (columns as wal_events has them) with this ordinal; returns the letter's id."""
    query = sql.SQL(statement("log", "park_row")).format(rows=rows)
    values = {"source": source, "epoch": epoch, "ordinal": ordinal, "cause": cause, "sqlstate": sqlstate}
    row = connection.execute(query, values).fetchone()
    assert row is not None  # noqa: S101  insert … returning
    return int(row[0])


def place(connection: Connection, letter: int, events_table: str, seq: int) -> None:
    """Where the event is that holds its place."""
    values = {"id": letter, "table": events_table, "seq": seq}
    connection.execute(statement("log", "place_letter"), values)


def counts(connection: Connection) -> dict[str, int]:
    """How many there are in each state."""
    found: dict[str, int] = dict(connection.execute(statement("log", "count_letters")).fetchall())
    return {state: found.get(state, 0) for state in STATES}


def find(connection: Connection, state: str | None, limit: int | None = None) -> list[Letter]:
    """In the order of the log; of one state, or all."""
    return queries.rows(connection, Letter, statement("log", "list_letters"), {"state": state, "limit": limit})


def request_retry(connection: Connection, ids: Sequence[int] | None) -> list[int]:
    """Ask the shuffler to write parked ones again (None: all); returns which those are."""
    return [row[0] for row in connection.execute(statement("log", "request_retry"), {"ids": _list(ids)})]


def discard(connection: Connection, ids: Sequence[int] | None) -> list[int]:
    """Give parked ones up (None: all): they stay for the record, and are not asked about again."""
    return [row[0] for row in connection.execute(statement("log", "discard_letters"), {"ids": _list(ids)})]


def to_retry(connection: Connection, source: uuid.UUID, limit: int) -> list[Retry]:
    """Those that the shuffler was asked to write again, locked, in the order of the log."""
    return queries.rows(connection, Retry, statement("log", "claim_retries"), {"source": source, "limit": limit})


def retried(connection: Connection, letter: int, seq: int) -> None:
    """It is in the log, in this transaction."""
    connection.execute(statement("log", "settle_letter"), {"id": letter, "seq": seq})


def failed(connection: Connection, letter: int, cause: str, sqlstate: str) -> None:
    """It cannot be written yet."""
    values = {"id": letter, "cause": cause, "sqlstate": sqlstate}
    connection.execute(statement("log", "park_again"), values)


def _list(ids: Sequence[int] | None) -> list[int] | None:
    return None if ids is None else list(ids)
