"""A transaction that the source cannot send: kept as a stop, and passed over when somebody asks for it.

The stop is recorded after everything before it is stored. Passing over is one staging transaction: an event that says
so, and a position just past the commit record's start, from where the slot sends what comes after.
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
from pipeline.capture.source.blocked_transactions import Stop
from pipeline.capture.source.sources import Source
from pipeline.errors import Undecodable
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.process.signals import Stop as Stopping
from pipeline.staging import rows
from pipeline.staging.writer import Batch, Writer
from pipeline.wal import lsn

logger = logging.getLogger(__name__)

PREFIX = "pipeline:skipped_transaction"
"""Name of the event that stands for a transaction which was passed over, as if it were a message."""
RETRY_SECONDS = 15.0
"""Between two attempts; decoding a large transaction is work for the source."""
_LOOK_SECONDS = 0.5
_EPOCH_2000 = datetime(2000, 1, 1, tzinfo=UTC)


def record(connection: Connection, source: Source, error: Undecodable) -> None:
    """Keep where the source stops. Everything before must be stored."""
    if error.commit_lsn is None:
        return
    committed_at = _EPOCH_2000 + timedelta(microseconds=error.committed_at)
    stop = Stop(source.epoch, error.commit_lsn, committed_at, error.xid, error.changes, error.cause, error.sqlstate)
    blocked_transactions.record(connection, source.id, stop)


def wait(connection: Connection, source_id: uuid.UUID, stopping: Stopping) -> None:
    """Until it is time for another attempt, or somebody has asked to pass over the transaction."""
    until = time.monotonic() + RETRY_SECONDS
    while time.monotonic() < until and not stopping.wait(_LOOK_SECONDS):
        stop = blocked_transactions.current(connection, source_id)
        if stop is not None and stop.requested_at is not None:
            return


async def carry_out(connection: Connection, staging: AsyncConnection[TupleRow], source: Source) -> int:
    """Pass over what somebody asked for; returns from where the slot is to send, 0 when that is its own business.

    Older writers are fenced before, so that nobody stages the transaction after all.
    """
    stop = blocked_transactions.current(connection, source.id)
    if stop is not None and stop.requested_at is not None:
        writer = await Writer.claim(staging, source.id)
        if writer.position <= stop.commit_lsn:
            await _pass_over(connection, staging, writer, source, stop)
    skipped = blocked_transactions.last_skipped(connection, source.id)
    return 0 if skipped is None else skipped + 1


async def _pass_over(
    connection: Connection, staging: AsyncConnection[TupleRow], writer: Writer, source: Source, stop: Stop
) -> None:
    at = stop.commit_lsn
    relation = _relation(connection, source, at)
    metadata = dumps({"skipped": lsn.show(at)}).decode()
    batch = Batch(
        rows=[_row(relation, stop)],
        first_lsn=at,
        last_lsn=at,
        first_ordinal=0,
        transactions=1,
        position=at + 1,
        commit_lsn=at,
        committed_at=_microseconds(stop),
        open_lsn=None,
        open_changes=0,
    )
    values = {"source": source.id, "epoch": stop.epoch, "commit_lsn": at}
    async with staging.transaction():
        await writer.append(batch, durable=True)
        await staging.execute(
            statement("capture.replication", "mark_event"), {**values, "relation": relation, "metadata": metadata}
        )
        await staging.execute(statement("capture.replication", "mark_skipped"), values)
    logger.warning(
        "passed over the transaction that commits at %s, as requested: %s",
        lsn.show(at),
        stop.cause,
        extra={"action": "replication.skipped", "lsn": lsn.show(at)},
    )


def _relation(connection: Connection, source: Source, at: int) -> int:
    form = versions.message_form(PREFIX)
    known = versions.latest(connection, source.id, source.epoch).get(versions.identity(form))
    return known.id if known else versions.record(connection, source.id, source.epoch, form, (at, 0))


def _row(relation_id: int, stop: Stop) -> bytes:
    content = (
        f"the transaction that committed at {lsn.show(stop.commit_lsn)} is not in the log: the source could not send "
        f"it ({stop.cause}, SQLSTATE {stop.sqlstate}; {stop.changes} of its changes had come before)"
    )
    head = rows.transaction_head(stop.commit_lsn)
    change = rows.change_head(relation_id, stop.xid, _microseconds(stop), b"message")
    return rows.row(head, 0, 0, change, b"", dumps({"content": content}))


def _microseconds(stop: Stop) -> int:
    return (stop.committed_at - _EPOCH_2000) // timedelta(microseconds=1)
