"""Rows of `pipeline.sessions`: each session, what its client has acknowledged, and why it ended."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from datetime import datetime

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.pool import Pool
from pipeline.postgres.queries import statement

NAME_PREFIX = "pipeline session "
ENDED_KEPT = 100
"""How many ended sessions are kept, so that their clients can learn the reason."""
_KEPT_SLOTS = "select slot from pipeline.sessions where dropped_at is null"
"""The slots of sessions that may exist, of every source."""
_SLOT_DROPPED = """\
update pipeline.sessions
set dropped_at = now()
where id = %(id)s and state = 'ended' and dropped_at is null
"""
"""Mark the slot of an ended session as dropped."""
_SLOT = re.compile("[a-z0-9_]{1,63}")


def walsender_name(slot: str) -> str:
    """Return the application_name of a session's replication connections at the source."""
    return NAME_PREFIX + slot


@dataclass(frozen=True)
class StoredSession:
    """A row of `pipeline.sessions`; LSNs are integers.

    `made_after`: how far the source had written before its slot existed.

    `position`: everything before it is acknowledged; stored before it is confirmed to the source; None while `making`.
    `used_at`: when a stream or a snapshot request last used it. `dropped_at` None: its slot may exist.
    `address`: of the client that created it. `used_for`: "stream", "pages", or None if no request has used it.
    """

    id: int
    slot: str
    wire: str
    source_id: uuid.UUID
    epoch: int
    system_identifier: str
    state: str
    made_after: int
    position: int | None
    created_at: datetime
    used_at: datetime
    reader: str | None = None
    reader_since: datetime | None = None
    reason: str | None = None
    ended_at: datetime | None = None
    dropped_at: datetime | None = None
    address: str | None = None
    used_for: str | None = None


def live(connection: Connection) -> list[StoredSession]:
    """Return all sessions that have not ended, oldest first."""
    return queries.rows(connection, StoredSession, statement("wires.pgdeltastream.sessions", "live_sessions"))


def live_slots(connection: Connection) -> list[str]:
    """Return the slots of all sessions that have not ended, in the order in which the sessions began."""
    return [session.slot for session in live(connection)]


def recent(connection: Connection) -> list[StoredSession]:
    """Return all sessions that have not ended, then those that ended within a day, newest first; for reports."""
    return queries.rows(connection, StoredSession, statement("wires.pgdeltastream.sessions", "recent_sessions"))


def kept(connection: Connection, source_id: uuid.UUID) -> list[StoredSession]:
    """Return the sessions of a source whose slots may exist, ended ones included, oldest first."""
    return queries.rows(
        connection, StoredSession, statement("wires.pgdeltastream.sessions", "kept_sessions"), {"source_id": source_id}
    )


def kept_slots(connection: Connection) -> set[str]:
    """Return the slots of all sources' sessions that may exist or may still be created."""
    return {row[0] for row in connection.execute(_KEPT_SLOTS).fetchall()}


def get(connection: Connection, session_id: int) -> StoredSession | None:
    """Return the session; None if its row is deleted, some time after its end."""
    return queries.one(
        connection, StoredSession, statement("wires.pgdeltastream.sessions", "get_session"), {"id": session_id}
    )


def find(connection: Connection, wire: str, slot: str) -> StoredSession | None:
    """Return the session with this slot name: the one that has not ended, else the one that ended last."""
    values = {"wire": wire, "slot": slot}
    return queries.one(connection, StoredSession, statement("wires.pgdeltastream.sessions", "find_session"), values)


def newest(connection: Connection, wire: str) -> StoredSession | None:
    """Return the newest session that can be used."""
    return queries.one(
        connection, StoredSession, statement("wires.pgdeltastream.sessions", "newest_session"), {"wire": wire}
    )


def begin(
    connection: Connection,
    *,
    slot: str,
    wire: str,
    source_id: uuid.UUID,
    epoch: int,
    system_identifier: str,
    made_after: int,
    address: str | None = None,
) -> StoredSession | None:
    """Store a session whose slot is about to be created; None if a session that has not ended has that name."""
    values = {
        "slot": slot,
        "wire": wire,
        "source_id": source_id,
        "epoch": epoch,
        "system_identifier": system_identifier,
        "made_after": made_after,
        "address": address,
    }
    return queries.one(connection, StoredSession, statement("wires.pgdeltastream.sessions", "begin_session"), values)


def ready(connection: Connection, session_id: int, position: int) -> StoredSession | None:
    """Mark a session as ready, with a slot that streams what ends after `position`; None if the session has ended."""
    values = {"id": session_id, "position": position}
    return queries.one(connection, StoredSession, statement("wires.pgdeltastream.sessions", "ready_session"), values)


def touch(connection: Connection, session_id: int) -> None:
    """Record that the session is in use now."""
    connection.execute(statement("wires.pgdeltastream.sessions", "touch_session"), {"id": session_id})


def end(connection: Connection, session_id: int, reason: str) -> bool:
    """Mark a session as ended; False if it had already ended, and keeps its reason. The caller drops the slot."""
    values = {"id": session_id, "reason": reason}
    return connection.execute(statement("wires.pgdeltastream.sessions", "end_session"), values).fetchone() is not None


def dropped(connection: Connection, session_id: int) -> None:
    """Record that the slot of this ended session no longer exists."""
    connection.execute(_SLOT_DROPPED, {"id": session_id})


def forget(connection: Connection, source_id: uuid.UUID) -> None:
    """Delete the ended sessions of a source beyond the newest ENDED_KEPT, once their slots are gone."""
    values = {"source_id": source_id, "kept": ENDED_KEPT}
    connection.execute(statement("wires.pgdeltastream.sessions", "forget_sessions"), values)


class WireSessions:
    """The sessions of one wire, whichever server created them."""

    def __init__(self, wire: str, database: Pool) -> None:
        self._wire = wire
        self._database = database

    async def newest(self) -> StoredSession | None:
        """Return the newest session that can be used."""
        return await self._one("newest_session")

    async def find(self, slot: str) -> StoredSession | None:
        """Return the session with this slot, which may have ended; None if there is none."""
        if not _SLOT.fullmatch(slot):
            return None
        return await self._one("find_session", slot=slot)

    async def touch(self, session: StoredSession) -> None:
        """Record that the session is in use now."""
        async with self._database.transaction() as connection:
            await connection.execute(statement("wires.pgdeltastream.sessions", "touch_session"), {"id": session.id})

    async def _one(self, name: str, **values: str) -> StoredSession | None:
        rows = await self._database.rows(
            statement("wires.pgdeltastream.sessions", name), {"wire": self._wire, **values}
        )
        return StoredSession(**rows[0]) if rows else None
