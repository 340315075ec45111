"""Which client reads a cursor: one at a time, identified by a database session that ends with its process."""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import DictRow, class_row, dict_row

from pipeline.errors import (
    ConsumerChanged,
    ConsumerError,
    CursorExpired,
    CursorHeld,
    PipelineError,
    UnknownConsumer,
    WrongKind,
)
from pipeline.log.page import Filter
from pipeline.postgres import connections, queries, session_settings
from pipeline.readers.cursor.feed import Connect, Connection

logger = logging.getLogger(__name__)

REVIEW_SECONDS = 2.0
"""How often the cursors that this process reads are checked; that also shows that the process is not frozen."""
FROZEN_SECONDS = 6.0
"""A process that has been silent for so long loses its cursors to the next reader that asks for them."""
_RELEASE_SECONDS = 1.0
_LEAVING_SECONDS = 0.5


@dataclass(frozen=True)
class _Found:
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
    is_there: bool
    aware: str
    held_by: int | None


class Claim:
    """A cursor that this process may read. `position`: the last acknowledged seq that is stored.

    `events_table`: what it reads, `schema.table`; None is the default one.
    """

    def __init__(
        self, name: str, session: str, wanted: Filter, position: int, events_table: str | None, *, paused: bool
    ) -> None:
        self.name = name
        self.session = session
        self.wanted = wanted
        self.position = position
        self.events_table = events_table
        self.ended: asyncio.Future[PipelineError] = asyncio.get_running_loop().create_future()
        self._active = asyncio.Event()
        self.set_paused(paused)

    async def active(self) -> None:
        """Wait while the consumer is paused."""
        await self._active.wait()

    def set_paused(self, paused: bool) -> None:
        """No events are sent while it is paused."""
        if paused:
            self._active.clear()
        else:
            self._active.set()

    def end(self, reason: PipelineError) -> None:
        """This process may no longer read the cursor."""
        if not self.ended.done():
            self.ended.set_result(reason)


class Cursors:
    """The cursors that are read through this process. `lend`: lends a connection for one transaction."""

    def __init__(self, dsn: str, lend: Connect) -> None:
        self._dsn = dsn
        self._lend = lend
        self._session: _Session | None = None
        self._opening = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._claims: dict[str, Claim] = {}
        self._releases: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def claim(self, name: str, reader: str) -> AsyncIterator[Claim]:
        """Read a cursor; `reader` is how other clients see this one.

        Raises UnknownConsumer, WrongKind, CursorHeld, CursorExpired, or Unavailable.
        """
        session = await self._live_session()
        own = f"{session.name}:{next(self._numbers)}"
        found = await self._take(name, reader, own)
        wanted = Filter(tuple(found.tables), tuple(found.actions))
        claim = Claim(name, own, wanted, found.position, found.events_table, paused=found.state == "paused")
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

    async def advance(self, claim: Claim, seq: int) -> None:
        """Store an acknowledgement. Raises ConsumerChanged when another client reads it now, UnknownConsumer."""
        values = {"name": claim.name, "seq": seq, "session": claim.session}
        try:
            async with self._lend() as connection:
                row = await (
                    await connection.execute(queries.statement("readers.cursor", "advance_cursor"), values)
                ).fetchone()
        except psycopg.errors.ObjectInUse:
            raise ConsumerChanged(f"consumer {claim.name} is now read by another client; connect again") from None
        except psycopg.errors.UndefinedObject:
            raise UnknownConsumer(f"consumer {claim.name} was dropped") from None
        claim.position = int(row[0]) if row else seq

    async def _take(self, name: str, reader: str, own: str) -> _Found:
        """Claim the consumer, and return it as it is; a frozen process that reads it is ended first."""
        try:
            return await self._try_take(name, reader, own)
        except _Busy as busy:
            if not (await self._left(busy.session) or await self._evict(busy.pid)):
                raise busy.held from None
        try:
            return await self._try_take(name, reader, own)
        except _Busy as busy:
            raise busy.held from None

    async def _try_take(self, name: str, reader: str, own: str) -> _Found:
        async with self._lend() as connection:
            found = await _find(connection, name)
            if found.held_by is not None and not self._forgotten(found.reader_session):
                since = f"{found.reader_since:%Y-%m-%d %H:%M:%S %Z}"
                held = CursorHeld(f"consumer {name} is read by {found.reader} since {since}")
                raise _Busy(found.held_by, found.reader_session or "", held)
            values = {"name": name, "reader": reader, "session": own}
            await connection.execute(queries.statement("readers.cursor", "take_cursor"), values)
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
                    await connection.execute(queries.statement("readers.cursor", "evict_reader"), values)
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
                    await connection.execute(queries.statement("readers.cursor", "release_cursor"), values)
                    return
            await asyncio.sleep(_RELEASE_SECONDS)

    async def _live_session(self) -> _Session:
        async with self._opening:
            if self._session is None or self._session.lost is not None:
                self._session = await _Session.open(self._dsn, self._claims)
            return self._session


class _Busy(Exception):
    def __init__(self, pid: int, session: str, held: CursorHeld) -> None:
        super().__init__()
        self.pid = pid
        self.session = session
        self.held = held


class _Session:
    """A connection that holds the advisory lock of its name. When it breaks, all its claims are lost."""

    def __init__(self, name: str, dsn: str, connection: Connection, claims: dict[str, Claim]) -> None:
        self.name = name
        self.lost: PipelineError | None = None
        self._dsn = dsn
        self._connection = connection
        self._claims = claims
        self._task = asyncio.create_task(self._keep(), name="cursors")
        # Also if the task is cancelled before it has begun, as at the end of a process.
        self._task.add_done_callback(lambda _: connection.pgconn.finish())

    @classmethod
    async def open(cls, dsn: str, claims: dict[str, Claim]) -> _Session:
        """Raises Unavailable."""
        name = uuid.uuid4().hex
        try:
            connection = await connections.connect_async(dsn, name="pipeline cursors", settings=session_settings.SERVER)
            try:
                await connection.execute(queries.statement("readers.cursor", "lock_session"), {"session": name})
            except BaseException:
                await connection.close()
                raise
        except (psycopg.Error, OSError) as error:
            raise connections.unavailable(dsn, "pipeline database", error) from error
        return cls(name, dsn, connection, claims)

    async def _keep(self) -> None:
        try:
            while True:
                await self._review()
                await asyncio.sleep(REVIEW_SECONDS)
        except Exception as error:
            traceback = None if isinstance(error, psycopg.Error | OSError) else error
            self.lost = connections.unavailable(self._dsn, "pipeline database", error)
            logger.warning("lost all cursors: %s", self.lost, exc_info=traceback, extra={"action": "cursor.lost"})
            for claim in self._own_claims():
                claim.end(self.lost)

    def _own_claims(self) -> list[Claim]:
        return [claim for claim in self._claims.values() if claim.session.startswith(f"{self.name}:")]

    async def _review(self) -> None:
        before = [(claim, claim.position) for claim in self._own_claims()]
        async with self._connection.cursor(row_factory=dict_row) as cursor:
            names = {"names": [claim.name for claim, _ in before]}
            await cursor.execute(queries.statement("readers.cursor", "review_cursors"), names, prepare=True)
            rows = {row["name"]: row for row in await cursor.fetchall()}
        for claim, position in before:
            if (reason := _judge(claim, position, rows.get(claim.name))) is not None:
                claim.end(reason)


def _judge(claim: Claim, position: int, row: DictRow | None) -> ConsumerError | None:
    """Why a claim has ended, by the consumer's current row, or None; also updates whether it is paused."""
    if row is None:
        return UnknownConsumer(f"consumer {claim.name} was dropped")
    if row["reader_session"] != claim.session:
        return ConsumerChanged(f"consumer {claim.name} was reset, or taken by another reader; connect again")
    if row["position"] < position:
        return ConsumerChanged(f"consumer {claim.name} was reset; connect again")
    claim.set_paused(row["state"] == "paused")
    return None


async def _find(connection: Connection, name: str) -> _Found:
    async with connection.cursor(row_factory=class_row(_Found)) as cursor:
        values: dict[str, Any] = {"name": name}
        found = await (await cursor.execute(queries.statement("readers.cursor", "find_cursor"), values)).fetchone()
    if found is None:
        remedy = "create it: `pipeline consumers create`, or POST /v1/consumers"
        raise UnknownConsumer(f"there is no consumer {name!r}; {remedy}")
    if found.kind != "cursor":
        raise WrongKind(f"consumer {name} is of kind {found.kind}; streams are for cursors, its items are received")
    if not found.is_there:
        remedy = f"restore the table, or delete the consumer: `pipeline consumers delete {name}`"
        raise CursorExpired(f"consumer {name} reads {found.events_table}, which no longer exists; {remedy}")
    if found.position < found.floor:
        raise CursorExpired(
            f"consumer {name} is at seq {found.position}, but events up to seq {found.floor} are no longer kept; "
            "reset it to 'beginning' to continue with the events that are left",
            found.floor,
        )
    return found
