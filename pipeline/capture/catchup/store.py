"""Changes the plan in the pipeline database. Without a plan there is no catch-up: worker 0 reads everything."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from itertools import pairwise

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline.capture.catchup.plan import BacklogPart
from pipeline.errors import FencedError
from pipeline.log.staging.worker_claim import WorkerClaim
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

IDLE_SECONDS = 15
"""Seconds without a statement after which a transaction is ended: its worker is frozen or cut off."""
_FORGET_SEQS = "update pipeline.catchup_parts set first_seq = null where source_id = %(source)s and worker = %(worker)s"
"""Forget the seqs that are reserved for a part: its next rows are staged."""


def connect(dsn: str, name: str) -> Connection:
    """Connect a catch-up to the pipeline database, so that a frozen process cannot hold its locks forever.

    Raises DatabaseUnavailableError.
    """
    connection = connections.connect(dsn, "pipeline database", name=name)
    connection.execute(f"set idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'".encode())
    return connection


def add_plan(connection: Connection, source_id: uuid.UUID, generation: int, parts: Sequence[BacklogPart]) -> None:
    """Store a plan durably: all parts but the anchor's, with the progress of their workers.

    `generation` is that of worker 0's writer. Raises FencedError, having stored nothing, if another writer has taken
    over, or if a plan exists already.
    """
    values = {
        "source": source_id,
        "generation": generation,
        "workers": [part.worker for part in parts],
        "from": [part.from_lsn for part in parts],
        "until": [part.until_lsn for part in parts],
        "first_seqs": [part.first_seq for part in parts],
    }
    with connection.transaction():
        connection.execute("set local synchronous_commit = on")
        stored = connection.execute(statement("capture.catchup", "add_parts"), values)
        if stored.rowcount != len(parts):
            raise FencedError(f"another replication worker has taken over source {source_id}; no catch-up is begun")


async def forget_seqs(connection: AsyncConnection[TupleRow], source_id: uuid.UUID, part: int) -> None:
    """Forget the seqs that are reserved for the part: its next rows are staged."""
    await connection.execute(_FORGET_SEQS, {"source": source_id, "worker": part})


async def absorb_part(connection: AsyncConnection[TupleRow], part: WorkerClaim, own: WorkerClaim) -> None:
    """Give the staged rows of a part to worker 0, durably, and end the part.

    `own` is the claim of worker 0, which must be taken again afterwards. Raises FencedError, having changed nothing,
    if another process has taken over.
    """
    values = {**part.who, "own_generation": own.generation}
    async with connection.transaction():
        await connection.execute("set local synchronous_commit = on")
        # Lock the table before any of its rows: the shuffler locks rows in another order.
        await connection.execute("lock table pipeline.segments in share row exclusive mode")
        absorbed = await connection.execute(statement("capture.catchup", "absorb_part"), values)
        if absorbed.rowcount != 1:
            raise FencedError(
                f"another replication worker has taken over source {part.source}; part {part.worker} is left to it"
            )


async def abandon_plan(
    connection: AsyncConnection[TupleRow], source_id: uuid.UUID, parts: Sequence[BacklogPart]
) -> None:
    """End a plan that cannot be finished.

    Rows that are staged without a gap become worker 0's; the others are discarded. `parts` begin with the anchor's.
    No worker may be running; a frozen one that wakes up later is fenced.
    """
    whole = True
    for before, part in pairwise(parts):
        whole = whole and before.complete
        other = await WorkerClaim.acquire(connection, source_id, part.worker)
        if whole:
            own = await WorkerClaim.acquire(connection, source_id)
            await absorb_part(connection, other, own)
        else:
            values = {"source": source_id, "worker": part.worker}
            await connection.execute(statement("capture.catchup", "discard_part"), values)
