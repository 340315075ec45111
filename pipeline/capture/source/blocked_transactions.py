"""Transactions that the source could not send: where it stops, and which of them somebody wants to pass over."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn

SKIP = "pipeline sources skip-transaction"


@dataclass(frozen=True)
class BlockedTransaction:
    """A transaction by its commit record; `changes` of it had come, the next one did not, for this `cause`."""

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
            return f"the source cannot send the transaction that commits at {at}; it is to be passed over, as requested"
        return (
            f"the source cannot send the transaction that commits at {at}: {self.cause} (SQLSTATE {self.sqlstate}); "
            f"remove the cause at the source, or run `{SKIP} {at}` to go on without the transaction"
        )


def record(connection: Connection, source_id: uuid.UUID, stop: BlockedTransaction) -> None:
    """Say where the source stops. Only when everything before it is stored; nothing for what is behind us already."""
    connection.execute(statement("capture.source", "record_stop"), {**vars(stop), "source": source_id})


def current(connection: Connection, source_id: uuid.UUID) -> BlockedTransaction | None:
    """Where the source stops now; None when it does not."""
    return queries.one(
        connection, BlockedTransaction, statement("capture.source", "current_stop"), {"source": source_id}
    )


def request(connection: Connection, source_id: uuid.UUID, commit_lsn: int) -> bool:
    """Ask the worker to pass over the transaction at which the source stops now; False when it stops nowhere there."""
    values = {"source": source_id, "commit_lsn": commit_lsn}
    return connection.execute(statement("capture.source", "request_skip"), values).rowcount == 1


def last_skipped(connection: Connection, source_id: uuid.UUID) -> int | None:
    """commit_lsn of the newest transaction of this epoch that was passed over."""
    found: int | None = queries.value(connection, statement("capture.source", "last_skipped"), {"source": source_id})
    return found
