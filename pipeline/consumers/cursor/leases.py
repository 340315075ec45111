"""Gives each cursor to one client at a time, identified by a database session that ends with its process."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import class_row

from pipeline.consumers.cursor.claims import CursorClaim, CursorSession
from pipeline.consumers.cursor.feed import Connect, Connection
from pipeline.errors import (
    ConsumerChangedError,
    CursorExpiredError,
    CursorHeldError,
    DatabaseUnavailableError,
    PipelineError,
    UnknownConsumerError,
    WrongConsumerKindError,
)
from pipeline.log.page import EventFilter
from pipeline.postgres import queries
from pipeline.postgres.silence import SilenceProbe

logger = logging.getLogger(__name__)

FROZEN_SECONDS = 6.0
"""Seconds of silence after which a process loses its cursors to the next reader that asks for them."""
_RELEASE_SECONDS = 1.0
_LEAVING_SECONDS = 0.5
_ADVANCE_CURSOR = "select pipeline.advance(%(name)s, %(seq)s, %(session)s)"
"""SQL that moves a cursor's position for the reader that has claimed it."""
_RELEASE_CURSOR = """\
update pipeline.consumers set reader = null, reader_session = null, reader_since = null
where name = %(name)s and reader_session = %(session)s
"""
"""SQL that releases a cursor, unless another reader has claimed it since."""
_CLAIM_CURSOR = """\
update pipeline.consumers
set reader = %(reader)s, reader_session = %(session)s, reader_since = clock_timestamp()
where name = %(name)s
"""
"""SQL that records the new reader of a cursor. Only after find_cursor, in its transaction."""


@dataclass(frozen=True)
class _CursorRow:
    kind: str
    state: str
    tables: list[str]
    actions: list[str]
    events_table: str | None
    position: int
    reader: str | None
    reader_session: str | None
    reader_since: datetime | None
    floor: int
    table_exists: bool
    reads_events_tables: str
    reader_pid: int | None


class CursorLeases:
    """The cursors that clients read through this process. `lend`: lends a connection for one transaction."""

    def __init__(self, dsn: str, lend: Connect) -> None:
        self._dsn = dsn
        self._lend = lend
        self._silence = SilenceProbe(dsn, "pipeline database")
        self._session: CursorSession | None = None
        self._opening = asyncio.Lock()
        self._closing = False
        self._numbers = itertools.count(1)
        self._claims: dict[str, CursorClaim] = {}
        self._releases: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Release all cursors for other readers, because the process ends. No cursor can be claimed after this."""
        self._closing = True
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def claim(self, name: str, reader: str) -> AsyncIterator[CursorClaim]:
        """Yield a claim on a cursor. `reader`: describes this client to other clients.

        Raises UnknownConsumerError, WrongConsumerKindError, CursorHeldError, CursorExpiredError, or
        DatabaseUnavailableError.
        """
        session = await self._silence.unless_silent(self._open_session())
        key = f"{session.name}:{next(self._numbers)}"
        found = await self._claim_cursor(name, reader, key)
        wanted = EventFilter(tuple(found.tables), tuple(found.actions))
        claim = CursorClaim(name, key, wanted, found.position, found.events_table, paused=found.state == "paused")
        if session.lost is not None:
            raise session.lost
        self._claims[key] = claim
        try:
            yield claim
        finally:
            del self._claims[key]
            release = asyncio.create_task(self._release(name, key))
            self._releases.add(release)
            release.add_done_callback(self._releases.discard)
            await asyncio.shield(release)

    async def advance(self, claim: CursorClaim, seq: int) -> None:
        """Store an acknowledgement.

        Raises ConsumerChangedError if another client reads the cursor now, UnknownConsumerError.
        """
        values = {"name": claim.name, "seq": seq, "session": claim.session}
        try:
            async with self._lend() as connection:
                row = await (await connection.execute(_ADVANCE_CURSOR, values)).fetchone()
        except psycopg.errors.ObjectInUse:
            raise ConsumerChangedError(f"consumer {claim.name} is now read by another client; connect again") from None
        except psycopg.errors.UndefinedObject:
            raise UnknownConsumerError(f"consumer {claim.name} was dropped") from None
        claim.position = int(row[0]) if row else seq

    async def _claim_cursor(self, name: str, reader: str, key: str) -> _CursorRow:
        """Claim the cursor, and return its row; the session of a frozen process that reads it is ended first."""
        try:
            return await self._try_claim(name, reader, key)
        except _CursorBusyError as busy:
            if not (await self._has_left(busy.session) or await self._evict_frozen(busy.pid)):
                raise busy.held from None
        try:
            return await self._try_claim(name, reader, key)
        except _CursorBusyError as busy:
            raise busy.held from None

    async def _try_claim(self, name: str, reader: str, key: str) -> _CursorRow:
        async with self._lend() as connection:
            found = await _find_cursor(connection, name)
            if found.reader_pid is not None and not self._is_unreleased(found.reader_session):
                since = f"{found.reader_since:%Y-%m-%d %H:%M:%S %Z}"
                held = CursorHeldError(f"consumer {name} is read by {found.reader} since {since}")
                raise _CursorBusyError(found.reader_pid, found.reader_session or "", held)
            values = {"name": name, "reader": reader, "session": key}
            await connection.execute(_CLAIM_CURSOR, values)
            return found

    def _is_unreleased(self, session: str | None) -> bool:
        """Return True for a claim of this process that has ended but could not be released."""
        is_own = self._session is not None and (session or "").startswith(f"{self._session.name}:")
        return is_own and session not in self._claims

    async def _has_left(self, session: str) -> bool:
        """Wait briefly until a reader of this process has left, so that a client that reconnects is not refused.

        Returns True if it has left.
        """
        for _ in range(10):
            if session not in self._claims:
                break
            await asyncio.sleep(_LEAVING_SECONDS / 10)
        return self._is_unreleased(session)

    async def _evict_frozen(self, pid: int) -> bool:
        """Try to end the session of a process that reads a cursor; return True if it was frozen, and has ended."""
        values = {"pid": pid, "seconds": FROZEN_SECONDS}
        try:
            async with self._lend() as connection:
                ended = await (
                    await connection.execute(queries.statement("consumers.cursor", "evict_reader"), values)
                ).fetchone()
        except psycopg.errors.InsufficientPrivilege:
            return False
        if ended is not None:
            logger.warning("ended the session of a frozen reader (pid %s)", pid, extra={"action": "cursor.evicted"})
        return ended is not None

    async def _release(self, name: str, key: str) -> None:
        """Release a cursor. Retry until it is released, or the session has ended, which releases it, too."""
        values = {"name": name, "session": key}
        while self._session is not None and self._session.lost is None and key.startswith(self._session.name):
            with suppress(psycopg.Error, PipelineError, OSError):
                async with self._lend() as connection:
                    await connection.execute(_RELEASE_CURSOR, values)
                    return
            await asyncio.sleep(_RELEASE_SECONDS)

    async def _open_session(self) -> CursorSession:
        async with self._opening:
            if self._session is None or self._session.lost is not None:
                self._session = await CursorSession.open(self._dsn, self._claims)
            if self._closing:
                await self._session.close()
                raise DatabaseUnavailableError("this server ends; connect again")
            return self._session


class _CursorBusyError(Exception):
    def __init__(self, pid: int, session: str, held: CursorHeldError) -> None:
        super().__init__()
        self.pid = pid
        self.session = session
        self.held = held


async def _find_cursor(connection: Connection, name: str) -> _CursorRow:
    async with connection.cursor(row_factory=class_row(_CursorRow)) as cursor:
        values: dict[str, Any] = {"name": name}
        found = await (await cursor.execute(queries.statement("consumers.cursor", "find_cursor"), values)).fetchone()
    if found is None:
        remedy = "create it: `pipeline consumers create`, or POST /v1/consumers"
        raise UnknownConsumerError(f"there is no consumer {name!r}; {remedy}")
    if found.kind != "cursor":
        raise WrongConsumerKindError(
            f"consumer {name} is of kind {found.kind}; streams are for cursors, its items are received"
        )
    if not found.table_exists:
        remedy = f"restore the table, or delete the consumer: `pipeline consumers delete {name}`"
        raise CursorExpiredError(f"consumer {name} reads {found.events_table}, which no longer exists; {remedy}")
    if found.position < found.floor:
        raise CursorExpiredError(
            f"consumer {name} is at seq {found.position}, but events up to seq {found.floor} are no longer kept; "
            "reset it to 'beginning' to continue with the events that are left",
            found.floor,
        )
    return found
