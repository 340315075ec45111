"""The rows of sessions: what a crash must not make forgotten, and what `status` shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg.rows import class_row

from pipeline.postgres.pool import Pool
from pipeline.postgres.queries import statement

CONSUMER = "walstream"
"""The cursor whose position all sessions share."""
_PACKAGE = "rpc.walstream"


@dataclass(frozen=True)
class Left:
    """A session that has ended, `ended_for` seconds ago, and may owe something."""

    id: int
    peer: str
    unacknowledged: int
    ended_for: float


class Store:
    """Writes and reads them."""

    def __init__(self, database: Pool, server: str) -> None:
        self._database = database
        self._server = server

    async def make_consumer(self) -> bool:
        """The consumer at the head of the log, when there is none; whether it was made."""
        try:
            return bool(await self._database.rows(statement(_PACKAGE, "make_consumer")))
        except psycopg.errors.DuplicateObject:  # somebody else has made it just now
            return False

    async def take(self, claim: str) -> list[Left]:
        """Sessions that an earlier claim has left."""
        async with self._database.transaction() as connection, connection.cursor(row_factory=class_row(Left)) as cursor:
            await cursor.execute(statement(_PACKAGE, "take_sessions"), {"claim": claim})
            return await cursor.fetchall()

    async def begin(self, claim: str, peer: str) -> int:
        """A session; returns its id."""
        values = {"claim": claim, "server": self._server, "peer": peer}
        return int((await self._database.rows(statement(_PACKAGE, "begin_session"), values))[0]["id"])

    async def note(self, session: int, sent: int, unacknowledged: int, *, ended: bool = False) -> None:
        """How it is."""
        values = {"id": session, "sent": sent, "unacknowledged": unacknowledged, "ended": ended}
        await self._execute("note_session", values)

    async def forget(self, session: int) -> bool:
        """It owes nothing, or is waited for no longer. Whether it was still there."""
        return bool(await self._database.rows(statement(_PACKAGE, "forget_session"), {"id": session}))

    async def count_shortened(self) -> None:
        """One more event went out without some of its values."""
        await self._execute("count_shortened", {})

    async def _execute(self, name: LiteralString, values: Mapping[str, object]) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(statement(_PACKAGE, name), values)
