"""Changes of the plan in the pipeline database. Without rows of a plan there is no catch-up: worker 0 reads all."""

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
"""After so long without a statement a transaction is ended: its worker is frozen or cut off."""
_FORGET_SEQS = "update pipeline.catchup_parts set first_seq = null where source_id = %(source)s and worker = %(worker)s"
"""What is read of a part is staged from now on."""


def connect(dsn: str, name: str) -> Connection:
    """A connection of a catch-up to the pipeline database, which cannot hold its locks for ever.

    Raises DatabaseUnavailableError.
    """
    connection = connections.connect(dsn, "pipeline database", name=name)
    connection.execute(f"set idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'".encode())
    return connection


def add_plan(connection: Connection, source_id: uuid.UUID, generation: int, parts: Sequence[BacklogPart]) -> None:
    """Store a plan, all parts but the anchor's, with the progress of their workers, durably.

    `generation`: of the writer that is worker 0. Raises FencedError, having stored nothing, when another writer has
    taken over, or when there is a plan already.
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
    """What is read of the part is staged from now on."""
    await connection.execute(_FORGET_SEQS, {"source": source_id, "worker": part})


async def absorb_part(connection: AsyncConnection[TupleRow], part: WorkerClaim, own: WorkerClaim) -> None:
    """Make what a part's worker has staged worker 0's, durably, and end the part.

    `own` is the claim of worker 0, which has to be taken again after it. Raises FencedError, having changed nothing,
    when another process has taken over.
    """
    values = {**part.who, "own_generation": own.generation}
    async with connection.transaction():
        await connection.execute("set local synchronous_commit = on")
        # Before locking any row of it: the shuffler locks rows in another order.
        await connection.execute("lock table pipeline.segments in share row exclusive mode")
        absorbed = await connection.execute(statement("capture.catchup", "absorb_part"), values)
        if absorbed.rowcount != 1:
            raise FencedError(
                f"another replication worker has taken over source {part.source}; part {part.worker} is left to it"
            )


async def abandon_plan(
    connection: AsyncConnection[TupleRow], source_id: uuid.UUID, parts: Sequence[BacklogPart]
) -> None:
    """End a plan that cannot be finished: what is staged without a gap becomes worker 0's, the rest is discarded.

    `parts` begin with the anchor's. No worker may be running; a frozen one that wakes up later is fenced.
    """
    whole = True
    for before, part in pairwise(parts):
        whole = whole and before.complete
        other = await WorkerClaim.take(connection, source_id, part.worker)
        if whole:
            own = await WorkerClaim.take(connection, source_id)
            await absorb_part(connection, other, own)
        else:
            values = {"source": source_id, "worker": part.worker}
            await connection.execute(statement("capture.catchup", "discard_part"), values)
