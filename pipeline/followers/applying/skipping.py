"""Skips a transaction: the follower's position moves past it, and the follower records which changes it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg import sql

from pipeline.followers.applying import position
from pipeline.followers.applying.position import FollowerPosition
from pipeline.log.page import OldestKeptSeq
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class NextTransaction:
    """The transaction that a follower must apply next. `tables`: the tables that it changes, as `schema.table`."""

    first_seq: int
    last_seq: int
    source_epoch: int
    commit_lsn: int | None
    committed_at: datetime
    events: int
    tables: Sequence[str]


def find_next(log: Connection, here: FollowerPosition, events_table: EventsTable) -> NextTransaction | None:
    """Return the transaction that a follower at this position must apply next.

    None if the follower has applied everything, or if the log lacks the next events.
    """
    query = sql.SQL(statement("followers.applying", "next_transaction")).format(
        events=events_table.identifier, source=sql.Literal(here.source), after=sql.Literal(here.seq)
    )
    found = queries.one(log, NextTransaction, query)
    return None if OldestKeptSeq(events_table).read(log) > here.seq + 1 else found


def skip(follower: Connection, here: FollowerPosition, left_out: NextTransaction, reason: str) -> FollowerPosition:
    """Move the position past a transaction, and record the skipped transaction and the reason, in one transaction.

    Returns the new position. Raises ApplierOvertakenError if the follower is no longer at `here`.
    """
    after = position.advance(here, left_out.source_epoch, left_out.last_seq, left_out.commit_lsn, left_out.committed_at)
    values = {**vars(left_out), "source": here.source, "follower": here.follower, "reason": reason}
    with follower.transaction():
        position.move(follower, here, after)
        follower.execute(statement("followers.applying", "record_skipped"), values)
    return after
