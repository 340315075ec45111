"""Stores sessions and holds, and moves the shared position with them in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg.rows import class_row

from pipeline.errors import ConsumerChangedError, UnknownConsumerError
from pipeline.postgres import pool
from pipeline.postgres.connections import AsyncConnection
from pipeline.postgres.pool import Pool
from pipeline.postgres.queries import statement

CONSUMER = "walstream"
"""The cursor whose position all sessions share."""
_PACKAGE = "wires.walstream"
_BEGIN_SESSION = """\
insert into pipeline.walstream_sessions (claim, server, peer, acknowledged_seq)
values (%(claim)s, %(server)s, %(peer)s, %(position)s)
returning id
"""
"""Add a session before it is sent anything, so that a crash forgets no session. It begins behind the position."""
_COUNT_SHORTENED = """\
insert into pipeline.wire_counters as c (wire, name, count) values ('walstream', 'shortened', 1)
on conflict (wire, name) do update set count = c.count + 1
"""
"""Count an event that was sent without some of its values."""
_MAKE_CONSUMER = """\
select (pipeline.create_consumer('walstream', 'cursor')).name
where not exists (select from pipeline.consumers where name = 'walstream')
"""
"""Create the consumer of walstream's clients at the head of the log; no row if it exists."""


@dataclass(frozen=True)
class SessionState:
    """The state of a session. `acknowledged`: the seq up to which it needs nothing; `sent`: the last that it was sent.

    `unacknowledged`: the number of events that it was sent and has not acknowledged.
    """

    id: int
    acknowledged: int
    sent: int | None = None
    unacknowledged: int = 0
    ended: bool = False


@dataclass(frozen=True)
class EndedHold:
    """A hold whose time is over. `highest_seq`: the highest seq that a session acknowledged during the hold."""

    peer: str
    unacknowledged: int
    highest_seq: int | None


class WalstreamStore:
    """Writes and reads rows of walstream's sessions."""

    def __init__(self, database: Pool, server: str) -> None:
        self._database = database
        self._server = server

    async def make_consumer(self) -> bool:
        """Create the consumer at the head of the log if there is none; True if it was created."""
        try:
            return bool(await self._database.rows(_MAKE_CONSUMER))
        except psycopg.errors.DuplicateObject:  # another process has made it just now
            return False

    async def begin(self, claim: str, peer: str) -> SessionState:
        """Add a session that begins behind the position. Raises ConsumerChangedError or UnknownConsumerError."""
        async with self._database.transaction() as connection:
            position = await _lock(connection, claim)
            values = {"claim": claim, "server": self._server, "peer": peer, "position": position}
            (row,) = await pool.rows(connection, _BEGIN_SESSION, values)
        return SessionState(row["id"], position)

    async def store_states(self, claim: str, states: Sequence[SessionState]) -> int:
        """Store the state of these sessions, and move the position; return it.

        Raises ConsumerChangedError or UnknownConsumerError.
        """
        fields = ("id", "acknowledged", "sent", "unacknowledged", "ended")
        values = {name: [getattr(each, name) for each in states] for name in fields}
        async with self._database.transaction() as connection:
            position = await _lock(connection, claim)
            await connection.execute(statement(_PACKAGE, "store_sessions"), values)
            return await _move(connection, claim, position, None)

    async def count(self, claim: str | None, hold: float, interval: float) -> tuple[int, list[EndedHold]]:
        """Count down all holds, each from `hold` seconds on, and move the position if some have ended.

        `interval`: seconds that one count takes off at most. Returns the number of holds that remain, and those that
        have ended. Raises ConsumerChangedError if another process serves the wire, and counts; or UnknownConsumerError.
        """
        async with self._database.transaction() as connection:
            position = await _lock(connection, claim)
            values = {"claim": claim, "hold": hold, "interval": interval, "position": position}
            counted = await connection.execute(statement(_PACKAGE, "count_holds"), values)
            async with connection.cursor(row_factory=class_row(EndedHold)) as cursor:
                ended = await (await cursor.execute(statement(_PACKAGE, "end_holds"))).fetchall()
            if ended:
                await _move(connection, claim, position, ended[0].highest_seq)
            return counted.rowcount - len(ended), ended

    async def count_shortened(self) -> None:
        """Count an event that was sent without some of its values."""
        async with self._database.transaction() as connection:
            await connection.execute(_COUNT_SHORTENED)


async def _lock(connection: AsyncConnection, claim: str | None) -> int:
    row = await (await connection.execute(statement(_PACKAGE, "lock_position"), {"claim": claim})).fetchone()
    if row is None:
        raise UnknownConsumerError(f"consumer {CONSUMER} was dropped")
    if not row[1]:
        raise ConsumerChangedError(f"consumer {CONSUMER} was reset, or is read by another process; connect again")
    return int(row[0])


async def _move(connection: AsyncConnection, claim: str | None, position: int, highest: int | None) -> int:
    values = {"claim": claim, "position": position, "highest": highest}
    row = await (await connection.execute(statement(_PACKAGE, "move_position"), values)).fetchone()
    return position if row is None else int(row[0])
