"""A run of segments, one after the other, with seqs that no other session hands out.

Before a run begins, the shuffler has moved everything that is staged.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline.log.staging.worker_claim import WorkerClaim
from pipeline.log.table import EventsTable
from pipeline.log.table_shape import COLUMNS
from pipeline.postgres.queries import statement

DRAIN_STEP, DRAIN_STALLED, DRAIN_LONGEST = 0.02, 2.0, 15.0
"""Seconds between two checks that everything staged is in the log, and seconds without a move after which the wait
ends: the first limit if the shuffler does nothing, the second if it is at work on a large transaction."""
LOCK_TIMEOUT = "set local lock_timeout = '1s'"


@dataclass
class PartitionRun:
    """A run of a worker. `next_seq`: the seq of its next row. `events`: the number of events that the log has.

    `may_continue`: none of its segments was moved. `number`: 0 until the run begins. The names of its tables end with
    `tag`.
    """

    source: uuid.UUID
    generation: int
    number: int
    next_seq: int
    epoch: int
    events: int
    may_continue: bool = True
    worker: int = 0

    @property
    def tag(self) -> str:
        """The end of the names of the run's tables, different for each run."""
        return f"{self.number}" if not self.worker else f"{self.generation}_{self.worker}"


@dataclass(frozen=True)
class DrainProgress:
    """The result of `is_drained.sql`: true if all is in the log, the watermark, and true if the shuffler is at work."""

    is_drained: bool
    moved_to: object
    is_at_work: bool


def values_of(claim: WorkerClaim, table: EventsTable) -> dict[str, Any]:
    """Return the parameters of the statements that begin a run."""
    return {
        **claim.who,
        "name": str(table),
        "table": table.identifier.as_string(),
        "sequence": table.sequence.as_string(),
        "columns": COLUMNS,
    }


async def begin(
    connection: AsyncConnection[TupleRow], claim: WorkerClaim, table: EventsTable, highest: int
) -> PartitionRun | str | None:
    """Begin a run, and make everything that is staged durable.

    Returns None while something staged is not in the log, or if the first seq would be above `highest`; or the reason
    why tables cannot become partitions of this one.
    """
    source, values = claim.source, {**values_of(claim, table), "highest": highest}
    try:
        async with connection.transaction():
            await connection.execute(LOCK_TIMEOUT)
            await connection.execute("set local synchronous_commit = on")
            cursor = await connection.execute(statement("log.staging", "adoptable"), values)
            reason = await cursor.fetchone()
            if reason != (None,):
                return str(reason and reason[0])
            await connection.execute(statement("log.staging", "hold_watermark"), {"source": source})
            cursor = await connection.execute(statement("log.staging.frontier", "begin_run"), values)
            row = await cursor.fetchone()
    except psycopg.errors.LockNotAvailable:  # the shuffler writes: try again later
        return None
    return None if row is None else PartitionRun(source, claim.generation, row[0], row[1], row[2], row[3])


async def begin_drained(
    connection: AsyncConnection[TupleRow], claim: WorkerClaim, table: EventsTable, clock: Callable[[], int]
) -> PartitionRun | str | None:
    """Begin a run once everything staged is in the log; wait for that as long as the shuffler moves rows."""
    query, source = statement("log.staging.frontier", "is_drained"), {"source": claim.source}

    async def read_progress() -> DrainProgress | None:
        found = await (await connection.execute(query, source)).fetchone()
        return None if found is None else DrainProgress(*found)

    return await begin(connection, claim, table, clock()) if await wait_until_drained(read_progress) else None


async def wait_until_drained(
    read_progress: Callable[[], Awaitable[DrainProgress | None]], longest: float | None = None
) -> bool:
    """Wait, as long as the shuffler moves rows, until everything staged for reached workers is in the log.

    Returns True if it is. `read_progress` returns None before the first shuffler has run. `longest`: seconds without a
    move, instead of DRAIN_LONGEST.
    """
    longest = DRAIN_LONGEST if longest is None else longest
    moved, moved_at, stalled_at = None, time.monotonic(), time.monotonic() + DRAIN_STALLED
    while time.monotonic() < min(stalled_at, moved_at + longest):
        found, now = await read_progress(), time.monotonic()
        if found is not None:
            if found.is_drained:
                return True
            if found.moved_to != moved:
                moved, moved_at = found.moved_to, now
            if found.is_at_work or moved_at == now:
                stalled_at = now + DRAIN_STALLED
        await asyncio.sleep(DRAIN_STEP)
    return False


async def end(connection: AsyncConnection[TupleRow], run: PartitionRun, not_before: int = 0) -> None:
    """End a run: other sessions may hand out seqs again once all of the run is in the log."""
    values = {"source": run.source, "generation": run.generation, "not_before": not_before}
    await connection.execute(statement("log.writing", "end_run"), values)
