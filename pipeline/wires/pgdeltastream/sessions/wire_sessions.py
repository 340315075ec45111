"""The sessions of a wire, found over the API's pool."""

from __future__ import annotations

import re

from pipeline.postgres.pool import Pool
from pipeline.postgres.queries import statement
from pipeline.wires.pgdeltastream.sessions.store import Session

_SLOT = re.compile("[a-z0-9_]{1,63}")


class Sessions:
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
