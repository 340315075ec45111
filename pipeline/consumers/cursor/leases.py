"""Which client reads a cursor: one at a time, identified by a database session that ends with its process."""

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
"""A process that has been silent for so long loses its cursors to the next reader that asks for them."""
_RELEASE_SECONDS = 1.0
_LEAVING_SECONDS = 0.5
_ADVANCE_CURSOR = "select pipeline.advance(%(name)s, %(seq)s, %(session)s)"
"""Move a cursor's position, on behalf of the reader that claimed it."""
_RELEASE_CURSOR = """\
update pipeline.consumers set reader = null, reader_session = null, reader_since = null
where name = %(name)s and reader_session = %(session)s
"""
"""Release a cursor, unless another reader has taken it since."""
_TAKE_CURSOR = """\
update pipeline.consumers
set reader = %(reader)s, reader_session = %(session)s, reader_since = clock_timestamp()
where name = %(name)s
"""
"""Record who reads a cursor from now on. Only after find_cursor, in its transaction."""


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
    """The cursors that are read through this process. `lend`: lends a connection for one transaction."""

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
        """Leave all cursors to other readers, as the process ends. None can be claimed from then on."""
        self._closing = True
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def claim(self, name: str, reader: str) -> AsyncIterator[CursorClaim]:
        """Read a cursor; `reader` is how other clients see this one.

        Raises UnknownConsumerError, WrongConsumerKindError, CursorHeldError, CursorExpiredError, or
        DatabaseUnavailableError.
        """
        session = await self._silence.unless_silent(self._live_session())
        own = f"{session.name}:{next(self._numbers)}"
        found = await self._take(name, reader, own)
        wanted = EventFilter(tuple(found.tables), tuple(found.actions))
        claim = CursorClaim(name, own, wanted, found.position, found.events_table, paused=found.state == "paused")
        if session.lost is not None:
            raise session.lost
        self._claims[own] = claim
        try:
            yield claim
        finally:
            del self._claims[own]
            release = asyncio.create_task(self._release(name, own))
            self._releases.add(release)
            release.add_done_callback(self._releases.discard)
            await asyncio.shield(release)

    async def advance(self, claim: CursorClaim, seq: int) -> None:
        """Store an acknowledgement.

        Raises ConsumerChangedError when another client reads it now, UnknownConsumerError.
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

    async def _take(self, name: str, reader: str, own: str) -> _CursorRow:
        """Claim the consumer, and return it as it is; a frozen process that reads it is ended first."""
        try:
            return await self._try_take(name, reader, own)
        except _CursorBusyError as busy:
            if not (await self._left(busy.session) or await self._evict(busy.pid)):
                raise busy.held from None
        try:
            return await self._try_take(name, reader, own)
        except _CursorBusyError as busy:
            raise busy.held from None

    async def _try_take(self, name: str, reader: str, own: str) -> _CursorRow:
        async with self._lend() as connection:
            found = await _find(connection, name)
            if found.reader_pid is not None and not self._forgotten(found.reader_session):
                since = f"{found.reader_since:%Y-%m-%d %H:%M:%S %Z}"
                held = CursorHeldError(f"consumer {name} is read by {found.reader} since {since}")
                raise _CursorBusyError(found.reader_pid, found.reader_session or "", held)
            values = {"name": name, "reader": reader, "session": own}
            await connection.execute(_TAKE_CURSOR, values)
            return found

    def _forgotten(self, session: str | None) -> bool:
        """Whether it is a claim of this process that ended but could not be released."""
        ours = self._session is not None and (session or "").startswith(f"{self._session.name}:")
        return ours and session not in self._claims

    async def _left(self, session: str) -> bool:
        """Whether a reader of this process is just leaving: a client that reconnects must not block itself."""
        for _ in range(10):
            if session not in self._claims:
                break
            await asyncio.sleep(_LEAVING_SECONDS / 10)
        return self._forgotten(session)

    async def _evict(self, pid: int) -> bool:
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

    async def _release(self, name: str, own: str) -> None:
        """Retry until it is released, or the session has ended, which releases it too."""
        values = {"name": name, "session": own}
        while self._session is not None and self._session.lost is None and own.startswith(self._session.name):
            with suppress(psycopg.Error, PipelineError, OSError):
                async with self._lend() as connection:
                    await connection.execute(_RELEASE_CURSOR, values)
                    return
            await asyncio.sleep(_RELEASE_SECONDS)

    async def _live_session(self) -> CursorSession:
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


async def _find(connection: Connection, name: str) -> _CursorRow:
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
