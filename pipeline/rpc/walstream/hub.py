"""All sessions of this process, and the position that they share: the cursor `walstream`, read while there are some.

It moves to the end of the last transaction that every session has acknowledged as a whole. A session that ends before
it has acknowledged all that it was sent holds the position for a minute: its client comes back, and begins behind the
position. After a crash every session that was there counts as such a one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import psycopg

from pipeline.errors import CursorHeld, PipelineError, Unavailable, UnknownConsumer, WrongKind
from pipeline.readers import refusals
from pipeline.readers.cursor.feed import Feed
from pipeline.readers.cursor.leases import Claim, Cursors
from pipeline.readers.cursor.shapes import Columns
from pipeline.rpc.walstream import messages
from pipeline.rpc.walstream.absent import Waiting
from pipeline.rpc.walstream.session import Session
from pipeline.rpc.walstream.store import CONSUMER, Store

logger = logging.getLogger(__name__)

STORE_SECONDS = 0.1
"""The position is stored at most so often."""
_LOOK_SECONDS, _NOTE_SECONDS = 1.0, 2.0


class Hub:
    """`session` for each client; `close` at the end."""

    def __init__(self, cursors: Cursors, feed: Feed[Columns], store: Store, server: str) -> None:
        self._cursors, self._feed, self._store = cursors, feed, store
        self._reader = f"walstream's clients through server {server}"
        self._sessions: set[Session] = set()
        self._absent = Waiting(store)
        self._coming = 0  # clients that are here, or about to be
        self._beginning: dict[object, int] = {}  # where those begin whose session is not made yet
        self._moving = asyncio.Lock()
        self._due = 0
        self._writes: list[Callable[[], Awaitable[object]]] = []
        self._noted_at = 0.0
        self._changed = asyncio.Event()
        self._claim: Claim | None = None
        self._ready: asyncio.Future[Claim] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._closing = False

    @asynccontextmanager
    async def session(self, peer: str) -> AsyncIterator[Session]:
        """A session that begins behind the position, until the block ends. Raises PipelineError."""
        one = object()
        self._coming += 1
        try:
            claim = await self._claimed()
            async with self._moving:  # it begins where the position is, and holds it there from then on
                self._beginning[one] = claim.position
            async with self._begun(peer, claim, one) as session:
                yield session
        finally:
            self._beginning.pop(one, None)
            self._coming -= 1
            self._changed.set()

    @asynccontextmanager
    async def _begun(self, peer: str, claim: Claim, one: object) -> AsyncIterator[Session]:
        begins = self._beginning[one]
        row = await self._begin_row(peer, claim)
        session = None
        try:
            async with self._feed.follower(messages.wanted(claim.wanted), begins) as follower:
                session = Session(row, peer, claim, follower)
                self._sessions.add(session)
                del self._beginning[one]
                try:
                    if claim.ended.done():
                        raise claim.ended.result()
                    yield session
                finally:
                    self._leave(session)  # while its follower still knows where it is
        finally:
            if session is None:
                self.later(lambda: self._store.forget(row))

    async def _begin_row(self, peer: str, claim: Claim) -> int:
        """Of a client that goes meanwhile nothing stays: nobody would end that session."""
        making = asyncio.ensure_future(self._store.begin(claim.session, peer))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            with suppress(psycopg.Error, PipelineError, OSError):
                row = await making
                self.later(lambda: self._store.forget(row))
            raise

    def acknowledge(self, session: Session, lsn: int) -> None:
        """A client's acknowledgement."""
        session.acknowledge(lsn)
        self._changed.set()

    def later(self, write: Callable[[], Awaitable[object]]) -> None:
        """Write something to the pipeline database soon, again and again until it succeeds."""
        self._writes.append(write)
        self._changed.set()

    async def close(self, seconds: float) -> None:
        """Store what was acknowledged; sessions have ended. Those that owe something are waited for by the next one."""
        self._closing = True
        self._absent.close()
        self._changed.set()
        if self._keeper is not None:
            await asyncio.wait([self._keeper], timeout=seconds)
            self._keeper.cancel()

    async def _claimed(self) -> Claim:
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep(self._ready), name="walstream")
        return await asyncio.shield(self._ready)

    async def _keep(self, ready: asyncio.Future[Claim]) -> None:
        """Read the cursor as long as somebody needs it. From its end on, who comes makes another claim."""
        try:
            async with self._cursor() as claim:
                try:
                    self._claim, self._due = claim, claim.position
                    await self._write()  # what an earlier claim has left undone
                    # Sessions of an earlier claim, which a crash has ended perhaps, are waited for like any other.
                    self._absent.replace(await self._store.take(claim.session), claim.position)
                    ready.set_result(claim)
                    while self._is_needed(claim):
                        await self._look(claim)
                    self._ready = None
                except Exception as error:
                    reason = _reason(error)
                    self._end(claim, reason)
                    raise reason from error
        except Exception as error:
            if self._ready is ready:  # else somebody has begun another claim meanwhile
                self._ready = None
            if not ready.done():
                ready.set_exception(_reason(error))
                ready.exception()  # nobody may wait for it any more

    def _end(self, claim: Claim, reason: PipelineError) -> None:
        """Who is told that its session has ended, and comes back at once, must find that there is no claim any more."""
        self._ready = self._claim = None
        claim.end(reason)
        for session in self._sessions:
            if session.claim is claim and not session.ended.done():
                session.ended.set_result(reason)

    @asynccontextmanager
    async def _cursor(self) -> AsyncIterator[Claim]:
        async with AsyncExitStack() as stack:
            try:
                claim = await stack.enter_async_context(self._cursors.claim(CONSUMER, self._reader))
            except UnknownConsumer:  # it was deleted: from now on, then
                await self._store.make_consumer()
                claim = await stack.enter_async_context(self._cursors.claim(CONSUMER, self._reader))
            if claim.events_table is not None:
                raise WrongKind(
                    f"consumer {CONSUMER} reads {claim.events_table}, and these clients the default events table; "
                    f"delete it: `pipeline consumers delete {CONSUMER}`"
                )
            yield claim

    def _is_needed(self, claim: Claim) -> bool:
        return bool(self._coming or self._writes or self._target() > claim.position)

    async def _look(self, claim: Claim) -> None:
        changed = asyncio.ensure_future(self._changed.wait())
        either: list[asyncio.Future[Any]] = [changed, claim.ended]
        await asyncio.wait(either, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()
        self._changed.clear()
        if claim.ended.done():
            raise claim.ended.result()
        async with self._moving:
            if (target := self._target()) > claim.position:
                await self._cursors.advance(claim, target)
        await self._write()
        if not self._closing:
            await asyncio.sleep(STORE_SECONDS)

    def _target(self) -> int:
        """Where the position may be: up to there all who are here have everything, or had who left last."""
        floors = [each.floor for each in self._sessions if each.claim is self._claim] + [*self._beginning.values()]
        if floors:
            self._due = min(floors)
        return min([self._due, *self._absent.floors])

    def _leave(self, session: Session) -> None:
        self._target()  # with what it has acknowledged
        self._sessions.discard(session)
        row, sent, left = session.id, session.sent, session.unacknowledged
        if not session.owes:
            self.later(lambda: self._store.forget(row))
            return
        self._absent.add(row, session.peer, left, session.floor)
        self.later(lambda: self._store.note(row, sent, left, ended=True))

    async def _write(self) -> None:
        """What is to be written; whatever fails is tried again."""
        if time.monotonic() - self._noted_at > _NOTE_SECONDS:
            self._noted_at = time.monotonic()
            for session in self._sessions:
                if (news := session.news()) is not None:
                    self._writes.append(lambda row=session.id, news=news: self._store.note(row, *news))  # type: ignore[misc]
        while self._writes:
            await self._writes[0]()
            del self._writes[0]


def _reason(error: Exception) -> PipelineError:
    """Why sessions cannot go on, for their clients: they come back after any error."""
    known = refusals.for_reader(error)
    if isinstance(known, CursorHeld):
        return Unavailable(f"this wire is served by one process at a time: {known}")
    if known is None:
        refusals.log_unexpected(error, "walstream.failed")
        return Unavailable("an unexpected error; see the server's log")
    return known
