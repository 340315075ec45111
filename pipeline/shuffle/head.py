"""The end of the log, as the replication worker knows it when it writes there: looked at once, then counted on."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline.log.table import EventsTable
from pipeline.postgres.queries import statement
from pipeline.shuffle import event_rows
from pipeline.shuffle.ways import Reason

AHEAD_EVERY = 1.0
"""Seconds between two batches that are moved so that the shuffler makes the next partition."""


@dataclass
class Head:
    """Every transaction up to `after` is in the log, whose newest event has `seq`, and nothing is staged after it."""

    epoch: int
    after: int
    routes: int
    table: EventsTable
    oid: int
    seq: int


class Room:
    """The partition that is written to, behind which the shuffler makes the next one from its middle on."""

    def __init__(self) -> None:
        self._lower = self._upper = self._ahead_at = 0.0
        self._has_next = False
        self.partition = 0
        """Its oid."""

    def lacks(self, upto: int) -> bool:
        """Whether this seq has no partition, or now and then, when the next one should be made."""
        if upto >= self._upper:
            return True
        if not self._wants_next(upto) or time.monotonic() < self._ahead_at:
            return False
        self._ahead_at = time.monotonic() + AHEAD_EVERY
        return True

    async def look(self, connection: AsyncConnection[TupleRow], table: EventsTable, seq: int) -> bool:
        """Look for the partition that the next seq is in; whether there is one."""
        if self._lower <= seq + 1 < self._upper and not self._wants_next(seq):
            return True
        found = []
        await connection.execute("set lock_timeout = '200ms'")  # who locks the log holds up no staging
        with suppress(psycopg.errors.LockNotAvailable):
            values = {"table": table.identifier.as_string(connection)}
            found = await (await connection.execute(statement("log", "list_partitions"), values)).fetchall()
        await connection.execute("reset lock_timeout")
        for oid, _, _, lower, upper in found:
            if lower <= seq + 1 < upper:
                self.partition, self._lower, self._upper = oid, lower, upper
                self._has_next = found[-1][4] > upper
                return True
        return False

    def _wants_next(self, seq: int) -> bool:
        return not self._has_next and seq >= (self._lower + self._upper) / 2

    def forget(self) -> None:
        """It may have been dropped."""
        self._lower = self._upper = 0.0


async def look(
    connection: AsyncConnection[TupleRow], source: uuid.UUID, default: EventsTable, room: Room
) -> Head | Reason:
    """The log's end, or why nothing can be written there at once. `default`: the events table of the settings."""
    found = await _one(connection, "look_at_head", {"source": source})
    if found is None or found[3] != str(default) or not found[4]:
        return Reason.ROUTES
    epoch, after, routes, _, _, has_staged, last_seq = found
    if has_staged:
        return Reason.STAGED
    table = await _one(
        connection,
        "look_at_table",
        {
            "table": default.identifier.as_string(connection),
            "sequence": default.sequence.as_string(connection),
            "columns": json.dumps(event_rows.COLUMNS),
        },
    )
    if table is None or not table[2] or table[1] < last_seq:
        return Reason.TABLE
    if not await room.look(connection, default, table[1]):
        return Reason.PARTITION
    return Head(epoch, after, routes, default, table[0], table[1])


async def _one(connection: AsyncConnection[TupleRow], name: str, values: dict[str, Any]) -> TupleRow | None:
    cursor = await connection.execute(statement("shuffle", name), values)
    return await cursor.fetchone()
