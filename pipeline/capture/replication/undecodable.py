"""A transaction that the source cannot send: records it as blocked, and skips it when a user requests that.

The transaction is recorded after everything before it is stored. Skipping is one staging transaction, with an event
that says so, and a position just past the start of the transaction's commit record. From there the slot sends the
transactions after it.
"""

from __future__ import annotations

import logging
import time
import uuid
from datetime import UTC, datetime, timedelta

from orjson import dumps
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline.capture.schema_history import versions
from pipeline.capture.source import blocked_transactions
from pipeline.capture.source.blocked_transactions import BlockedTransaction
from pipeline.capture.source.sources import ReplicationSource
from pipeline.errors import UndecodableChangeError
from pipeline.log.staging import rows
from pipeline.log.staging.batch import ChangeBatch
from pipeline.log.staging.worker_claim import WorkerClaim
from pipeline.log.writing import log_writer
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.process.signals import StopSignal
from pipeline.wal import lsn

logger = logging.getLogger(__name__)

PREFIX = "pipeline:skipped_transaction"
"""Name of the event that stands for a skipped transaction, as if the event were a message."""
RETRY_SECONDS = 15.0
"""Seconds between two attempts; decoding a large transaction is work for the source."""
_POLL_SECONDS = 0.5
_EPOCH_2000 = datetime(2000, 1, 1, tzinfo=UTC)


def record(connection: Connection, source: ReplicationSource, error: UndecodableChangeError) -> None:
    """Record the transaction that the source cannot send. Everything before it must be stored."""
    if error.commit_lsn is None:
        return
    committed_at = _EPOCH_2000 + timedelta(microseconds=error.committed_at)
    blocked = BlockedTransaction(
        source.epoch, error.commit_lsn, committed_at, error.xid, error.changes, error.cause, error.sqlstate
    )
    blocked_transactions.record(connection, source.id, blocked)


def wait_for_retry(connection: Connection, source_id: uuid.UUID, stopping: StopSignal) -> None:
    """Wait until the next attempt is due, or until a user requests that the transaction be skipped."""
    until = time.monotonic() + RETRY_SECONDS
    while time.monotonic() < until and not stopping.wait(_POLL_SECONDS):
        blocked = blocked_transactions.current(connection, source_id)
        if blocked is not None and blocked.requested_at is not None:
            return


async def skip_requested(connection: Connection, staging: AsyncConnection[TupleRow], source: ReplicationSource) -> int:
    """Skip the transaction if a user has requested that; returns the LSN to start the slot at, 0 for its own
    position.

    Older writers are fenced first, so that none of them can still stage the transaction.
    """
    blocked = blocked_transactions.current(connection, source.id)
    if blocked is not None and blocked.requested_at is not None:
        claim = await WorkerClaim.acquire(staging, source.id)
        if claim.position <= blocked.commit_lsn:
            await _skip(connection, staging, claim, source, blocked)
    skipped = blocked_transactions.last_skipped(connection, source.id)
    return 0 if skipped is None else skipped + 1


async def _skip(
    connection: Connection,
    staging: AsyncConnection[TupleRow],
    claim: WorkerClaim,
    source: ReplicationSource,
    blocked: BlockedTransaction,
) -> None:
    at = blocked.commit_lsn
    relation = _relation(connection, source, at)
    batch = ChangeBatch(
        rows=[_row(relation, blocked)],
        first_lsn=at,
        last_lsn=at,
        first_ordinal=0,
        transactions=1,
        position=at + 1,
        commit_lsn=at,
        committed_at=_microseconds(blocked),
        open_lsn=None,
        open_changes=0,
    )
    values = {"source": source.id, "epoch": blocked.epoch, "commit_lsn": at}
    async with staging.transaction():
        await log_writer.stage_within(staging, claim, batch)
        await staging.execute(statement("capture.replication", "mark_skipped"), values)
    logger.warning(
        "skipped the transaction that commits at %s, as requested: %s",
        lsn.show(at),
        blocked.cause,
        extra={"action": "replication.skipped", "lsn": lsn.show(at)},
    )


def _relation(connection: Connection, source: ReplicationSource, at: int) -> int:
    version = versions.message_version(PREFIX)
    known = versions.latest(connection, source.id, source.epoch).get(versions.identity(version))
    return known.id if known else versions.record(connection, source.id, source.epoch, version, (at, 0))


def _row(relation_id: int, blocked: BlockedTransaction) -> bytes:
    content = (
        f"the transaction that committed at {lsn.show(blocked.commit_lsn)} is not in the log: the source could not "
        f"send it ({blocked.cause}, SQLSTATE {blocked.sqlstate}; {blocked.changes} of its changes were received before)"
    )
    head = rows.transaction_head(blocked.commit_lsn)
    change = rows.change_head(relation_id, blocked.xid, _microseconds(blocked), b"message")
    metadata = dumps({"skipped": lsn.show(blocked.commit_lsn)})
    return rows.row(head, 0, 0, change, b"", dumps({"content": content}), (None, None, None, None, None, metadata))


def _microseconds(blocked: BlockedTransaction) -> int:
    return (blocked.committed_at - _EPOCH_2000) // timedelta(microseconds=1)
