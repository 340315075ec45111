"""Read the end of the log, where the direct path writes; the writer remembers the result."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncClientCursor, AsyncConnection
from psycopg.rows import TupleRow

from pipeline.log.staging.choose_path import LogEnd, PathReason
from pipeline.log.table import EventsTable
from pipeline.log.writing import event_rows
from pipeline.postgres.pipelined_copy import roll_back
from pipeline.postgres.queries import statement

LOCK_TIMEOUT_MS = "200ms"
LOCK_TIMEOUT = f"set local lock_timeout = '{LOCK_TIMEOUT_MS}'"
"""A session that locks the log, or the tables of its state, delays the log but not the reading of the source."""
REQUEST_EVERY = 1.0
"""Seconds between two batches that are staged so that the shuffler creates the next partition."""


class TargetPartition:
    """The partition to which the direct path writes. From its middle on, the shuffler creates the next one."""

    def __init__(self) -> None:
        self._lower = self._upper = self._requested_until = 0.0
        self._has_next = False
        self.oid = 0
        """The oid of the partition."""

    @property
    def upper(self) -> float:
        """The first seq behind the partition."""
        return self._upper

    @property
    def next_from(self) -> float:
        """The seq from which the next partition should be created; infinite if it exists, or was requested recently."""
        return math.inf if self._has_next or time.monotonic() < self._requested_until else self._middle

    def request_next(self) -> None:
        """Remember that a batch is staged, so that the shuffler creates the next partition."""
        self._requested_until = time.monotonic() + REQUEST_EVERY

    async def find(self, connection: AsyncConnection[TupleRow], table: EventsTable, seq: int) -> bool:
        """Find the partition of the next seq; returns True if it exists."""
        if self._lower <= seq + 1 < self._upper and (self._has_next or seq < self._middle):
            return True
        found: list[TupleRow] = []
        with suppress(psycopg.errors.LockNotAvailable):
            values = {"table": table.identifier.as_string(connection)}
            found = await query(connection, statement("log", "list_partitions"), values)
        for oid, _, _, lower, upper in found:
            if lower <= seq + 1 < upper:
                self.oid, self._lower, self._upper = oid, lower, upper
                self._has_next = found[-1][4] > upper
                return True
        return False

    def forget(self) -> None:
        """Forget the partition: it may have been dropped."""
        self._lower = self._upper = 0.0

    @property
    def _middle(self) -> float:
        return (self._lower + self._upper) / 2


async def read(
    connection: AsyncConnection[TupleRow], read_end: str, default: EventsTable, partition: TargetPartition
) -> LogEnd | PathReason:
    """Return the log's end, or why nothing can be written there. `default`: the events table of the settings.

    `read_end`: the call of the prepared statement `log_end`.
    """
    found = await query(connection, read_end)
    if not found or found[0][3] != str(default) or not found[0][4]:
        return PathReason.ROUTES
    epoch, after, routes, _, _, has_staged, last_seq = found[0]
    if has_staged:
        return PathReason.STAGED
    values = {
        "table": default.identifier.as_string(connection),
        "sequence": default.sequence.as_string(connection),
        "columns": json.dumps(event_rows.COLUMNS),
    }
    table = await (await connection.execute(statement("log.writing", "check_table"), values)).fetchone()
    if table is None or not table[2] or table[1] < last_seq:
        return PathReason.TABLE
    if not await partition.find(connection, default, table[1]):
        return PathReason.PARTITION
    return LogEnd(epoch, after, routes, table[0], table[1])


async def query(
    connection: AsyncConnection[TupleRow], query: str, values: Mapping[str, Any] | None = None
) -> list[TupleRow]:
    """Return the rows of one statement. It waits for a lock for LOCK_TIMEOUT, and then raises a psycopg error."""
    cursor = AsyncClientCursor(connection)
    text = cursor.mogrify(query, values)
    try:
        await cursor.execute(f"BEGIN; {LOCK_TIMEOUT}; {text}\n; COMMIT".encode())
    except psycopg.Error:
        with suppress(psycopg.Error):  # the connection itself may be broken
            await roll_back(connection)
        raise
    cursor.nextset()
    cursor.nextset()
    return await cursor.fetchall() if cursor.description else []
