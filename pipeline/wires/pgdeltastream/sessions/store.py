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
"""So many ended sessions stay, so that their clients learn why."""
_KEPT_SLOTS = "select slot from pipeline.sessions where dropped_at is null"
"""The slots of sessions that may exist, of every source."""
_SLOT_DROPPED = """\
update pipeline.sessions
set dropped_at = now()
where id = %(id)s and state = 'ended' and dropped_at is null
"""
"""The slot of an ended session does not exist any more."""
_SLOT = re.compile("[a-z0-9_]{1,63}")


def walsender_name(slot: str) -> str:
    """The application_name at the source of whatever speaks the replication protocol for a session."""
    return NAME_PREFIX + slot


@dataclass(frozen=True)
class Session:
    """A session as stored; LSNs as integers. `made_after`: the source wrote here before the slot was made.

    `position`: everything before it is acknowledged; stored before it is confirmed to the source; None while `making`.
    `used_at`: when a stream or a snapshot request last used it. `dropped_at` None: its slot may exist.
    `address`: of the client that made it. `used_for`: "stream", "pages", or None if no request has used it.
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


def live(connection: Connection) -> list[Session]:
    """All sessions that have not ended, oldest first."""
    return queries.rows(connection, Session, statement("wires.pgdeltastream.sessions", "live_sessions"))


def live_slots(connection: Connection) -> list[str]:
    """Slots of all sessions that have not ended, those of the oldest first."""
    return [session.slot for session in live(connection)]


def recent(connection: Connection) -> list[Session]:
    """All sessions that have not ended, then those that ended last, within a day, the newest first; for reports."""
    return queries.rows(connection, Session, statement("wires.pgdeltastream.sessions", "recent_sessions"))


def kept(connection: Connection, source_id: uuid.UUID) -> list[Session]:
    """The sessions of a source whose slots may exist, ended ones included, oldest first."""
    return queries.rows(
        connection, Session, statement("wires.pgdeltastream.sessions", "kept_sessions"), {"source_id": source_id}
    )


def kept_slots(connection: Connection) -> set[str]:
    """Slots of all sources' sessions that may exist, or that may still be made."""
    return {row[0] for row in connection.execute(_KEPT_SLOTS).fetchall()}


def get(connection: Connection, session_id: int) -> Session | None:
    """The session as it is now; None where it ended so long ago that its row is gone."""
    return queries.one(
        connection, Session, statement("wires.pgdeltastream.sessions", "get_session"), {"id": session_id}
    )


def find(connection: Connection, wire: str, slot: str) -> Session | None:
    """The session with this slot name: the one that has not ended, else the one that ended last."""
    values = {"wire": wire, "slot": slot}
    return queries.one(connection, Session, statement("wires.pgdeltastream.sessions", "find_session"), values)


def newest(connection: Connection, wire: str) -> Session | None:
    """The session that was made last, of those that can be used."""
    return queries.one(connection, Session, statement("wires.pgdeltastream.sessions", "newest_session"), {"wire": wire})


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
) -> Session | None:
    """Store a session whose slot is about to be made; None where one that has not ended has that name."""
    values = {
        "slot": slot,
        "wire": wire,
        "source_id": source_id,
        "epoch": epoch,
        "system_identifier": system_identifier,
        "made_after": made_after,
        "address": address,
    }
    return queries.one(connection, Session, statement("wires.pgdeltastream.sessions", "begin_session"), values)


def ready(connection: Connection, session_id: int, position: int) -> Session | None:
    """The slot exists, and streams what ends after `position`; None where the session has been ended meanwhile."""
    values = {"id": session_id, "position": position}
    return queries.one(connection, Session, statement("wires.pgdeltastream.sessions", "ready_session"), values)


def touch(connection: Connection, session_id: int) -> None:
    """The session is in use now."""
    connection.execute(statement("wires.pgdeltastream.sessions", "touch_session"), {"id": session_id})


def end(connection: Connection, session_id: int, reason: str) -> bool:
    """The session is over; False where it was already, and keeps its reason. Its slot is the caller's to drop."""
    values = {"id": session_id, "reason": reason}
    return connection.execute(statement("wires.pgdeltastream.sessions", "end_session"), values).fetchone() is not None


def dropped(connection: Connection, session_id: int) -> None:
    """The slot of this ended session does not exist any more."""
    connection.execute(_SLOT_DROPPED, {"id": session_id})


def forget(connection: Connection, source_id: uuid.UUID) -> None:
    """Delete the ended sessions of a source beyond the newest ENDED_KEPT, once their slots are gone."""
    values = {"source_id": source_id, "kept": ENDED_KEPT}
    connection.execute(statement("wires.pgdeltastream.sessions", "forget_sessions"), values)


class WireSessions:
    """Those of one wire, whichever server made them."""

    def __init__(self, wire: str, database: Pool) -> None:
        self._wire = wire
        self._database = database

    async def newest(self) -> Session | None:
        """The one that was made last, of those that can be used."""
        return await self._one("newest_session")

    async def find(self, slot: str) -> Session | None:
        """The one with this slot: it may have ended. None for what cannot be the name of a slot, too."""
        if not _SLOT.fullmatch(slot):
            return None
        return await self._one("find_session", slot=slot)

    async def touch(self, session: Session) -> None:
        """It is in use now."""
        async with self._database.transaction() as connection:
            await connection.execute(statement("wires.pgdeltastream.sessions", "touch_session"), {"id": session.id})

    async def _one(self, name: str, **values: str) -> Session | None:
        rows = await self._database.rows(
            statement("wires.pgdeltastream.sessions", name), {"wire": self._wire, **values}
        )
        return Session(**rows[0]) if rows else None
