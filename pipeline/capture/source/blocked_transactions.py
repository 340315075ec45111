"""Transactions that the source could not send: which one blocks the stream, and which of them a user wants to skip."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn

SKIP = "pipeline sources skip-transaction"
_LAST_SKIPPED = """\
select max(s.commit_lsn) from pipeline.source_stops s
join pipeline.replication_progress p on p.source_id = s.source_id and p.worker = 0 and p.epoch = s.epoch
where s.source_id = %(source)s and s.skipped_at is not null
"""
"""The newest skipped transaction of the current epoch."""


@dataclass(frozen=True)
class BlockedTransaction:
    """A transaction, by its commit record, of which the source has sent only the first `changes`. `cause`: of the
    error.
    """

    epoch: int
    commit_lsn: int
    committed_at: datetime
    xid: int
    changes: int
    cause: str
    sqlstate: str
    requested_at: datetime | None = None

    def __str__(self) -> str:
        at = lsn.show(self.commit_lsn)
        if self.requested_at is not None:
            return f"the source cannot send the transaction that commits at {at}; it will be skipped, as requested"
        return (
            f"the source cannot send the transaction that commits at {at}: {self.cause} (SQLSTATE {self.sqlstate}); "
            f"remove the cause at the source, or run `{SKIP} {at}` to continue without the transaction"
        )


def record(connection: Connection, source_id: uuid.UUID, blocked: BlockedTransaction) -> None:
    """Record the transaction, once everything before it is stored; does nothing if our position is past it already."""
    connection.execute(statement("capture.source", "record_blocked"), {**vars(blocked), "source": source_id})


def current(connection: Connection, source_id: uuid.UUID) -> BlockedTransaction | None:
    """Return the transaction that blocks the stream now; None if none does."""
    return queries.one(
        connection, BlockedTransaction, statement("capture.source", "current_blocked"), {"source": source_id}
    )


def request_skip(connection: Connection, source_id: uuid.UUID, commit_lsn: int) -> bool:
    """Ask the worker to skip the transaction that blocks the stream; False if this one does not block it."""
    values = {"source": source_id, "commit_lsn": commit_lsn}
    return connection.execute(statement("capture.source", "request_skip"), values).rowcount == 1


def last_skipped(connection: Connection, source_id: uuid.UUID) -> int | None:
    """Return commit_lsn of the newest skipped transaction of this epoch; None if there is none."""
    found: int | None = queries.value(connection, _LAST_SKIPPED, {"source": source_id})
    return found
