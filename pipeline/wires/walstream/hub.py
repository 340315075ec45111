"""Serves all sessions of this process, and moves the position that they share: the cursor `walstream`.

The position moves to the end of the last transaction that every session has acknowledged completely. A session that
ends leaves a hold, because its client will reconnect, and begin behind the position. After a crash every session counts
as ended. Sessions and holds are rows, from which alone the position is computed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import psycopg

from pipeline import printable, refusals
from pipeline.consumers.cursor.claims import CursorClaim
from pipeline.consumers.cursor.feed import LogFeed
from pipeline.consumers.cursor.leases import CursorLeases
from pipeline.errors import (
    ConsumerError,
    CursorHeldError,
    DatabaseUnavailableError,
    PipelineError,
    UnknownConsumerError,
    WrongConsumerKindError,
)
from pipeline.log.shapes import EventColumns
from pipeline.process import supervised
from pipeline.wires.walstream import messages
from pipeline.wires.walstream.session import ClientSession
from pipeline.wires.walstream.store import CONSUMER, EndedHold, SessionState, WalstreamStore

logger = logging.getLogger(__name__)

STORE_SECONDS = 0.1
"""The least number of seconds between two writes of the position and of acknowledgements."""
_LOOK_SECONDS = 1.0

HOLD_SECONDS = 60.0
"""How long the position waits for the client of a session that has ended, in seconds in which the wire is served."""
COUNT_SECONDS = 1.0
"""How often the remaining seconds of holds are stored."""
LOOK_SECONDS = 30.0
"""How often a process that knows of no hold checks for holds, since another process may have died."""


class SessionHub:
    """The sessions of all clients of this process. Call `session` for each client, and `close` at the end."""

    def __init__(self, cursors: CursorLeases, feed: LogFeed[EventColumns], store: WalstreamStore, server: str) -> None:
        self._cursors, self._feed, self._store = cursors, feed, store
        self._reader = f"walstream's clients through server {server}"
        self._sessions: set[ClientSession] = set()
        self._left: list[SessionState] = []  # ended sessions of this claim, whose end is not stored yet
        self._coming = 0  # the number of clients that are connected or connecting
        self._writes: list[Callable[[], Awaitable[object]]] = []
        self._changed = asyncio.Event()
        self._claim: CursorClaim | None = None
        self._ready: asyncio.Future[CursorClaim] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._closing = False
        self._holds = HoldCounter(store, lambda: self._claim.session if self._claim else None)

    @asynccontextmanager
    async def session(self, peer: str) -> AsyncIterator[ClientSession]:
        """Serve a session that begins behind the position, until the block ends. Raises PipelineError."""
        self._coming += 1
        try:
            claim = await self._claimed()
            async with self._begun(peer, claim) as session:
                yield session
        finally:
            self._coming -= 1
            self._changed.set()

    @asynccontextmanager
    async def _begun(self, peer: str, claim: CursorClaim) -> AsyncIterator[ClientSession]:
        begun = await self._begin_row(peer, claim)
        session = None
        try:
            async with self._feed.follower(messages.wanted(claim.event_filter), begun.acknowledged) as follower:
                session = ClientSession(begun.id, claim, follower)
                self._sessions.add(session)
                try:
                    if claim.ended.done():
                        raise claim.ended.result()
                    yield session
                finally:
                    self._sessions.discard(session)
                    self._leave(claim, session.state(ended=True))  # while its follower still knows its position
        finally:
            if session is None:
                self._leave(claim, replace(begun, ended=True))

    async def _begin_row(self, peer: str, claim: CursorClaim) -> SessionState:
        """Begin the row of a session. If the client leaves before the row is stored, the row becomes a hold, too."""
        making = asyncio.ensure_future(self._store.begin(claim.session, peer))
        try:
            return await asyncio.shield(making)
        except ConsumerError as error:
            claim.end(error)
            raise
        except asyncio.CancelledError:
            with suppress(psycopg.Error, PipelineError, OSError):
                self._leave(claim, replace(await making, ended=True))
            raise

    def _leave(self, claim: CursorClaim, state: SessionState) -> None:
        if claim is self._claim:  # sessions of an earlier claim become holds without this
            self._left.append(state)

    def acknowledge(self, session: ClientSession, lsn: int) -> None:
        """Take an acknowledgement of a client."""
        session.acknowledge(lsn)
        self._changed.set()

    def schedule_write(self, write: Callable[[], Awaitable[object]]) -> None:
        """Call soon a function that writes to the pipeline database, and repeat the call until it succeeds."""
        self._writes.append(write)
        self._changed.set()

    async def close(self, seconds: float) -> None:
        """Store acknowledgements; all sessions must have ended. The next process takes over their holds."""
        self._closing = True
        self._holds.close()
        self._changed.set()
        if self._keeper is not None:
            await asyncio.wait([self._keeper], timeout=seconds)
            self._keeper.cancel()

    async def _claimed(self) -> CursorClaim:
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep(self._ready), name="walstream")
        return await asyncio.shield(self._ready)

    async def _keep(self, ready: asyncio.Future[CursorClaim]) -> None:
        """Read the cursor as long as there are clients. A client that connects later starts another claim."""
        try:
            async with self._cursor() as claim:
                try:
                    self._claim = claim
                    await self._write()  # writes that an earlier claim did not finish
                    self._holds.wake()
                    ready.set_result(claim)
                    while self._coming or self._left or self._writes:
                        await self._wait(claim)
                    self._ready = self._claim = None
                except Exception as error:
                    reason = _reason(error)
                    self._end(claim, reason)
                    raise reason from error
        except Exception as error:
            if self._ready is ready:  # else another claim has begun since
                self._ready = None
            if not ready.done():
                ready.set_exception(_reason(error))
                ready.exception()  # marks it as retrieved: perhaps no client waits for it

    def _end(self, claim: CursorClaim, reason: PipelineError) -> None:
        """End the claim and its sessions. The claim goes first: a client that reconnects at once must not find it."""
        self._ready = self._claim = None
        self._left.clear()
        self._holds.wake()
        claim.end(reason)
        for session in self._sessions:
            if session.claim is claim and not session.ended.done():
                session.ended.set_result(reason)

    @asynccontextmanager
    async def _cursor(self) -> AsyncIterator[CursorClaim]:
        async with AsyncExitStack() as stack:
            try:
                claim = await stack.enter_async_context(self._cursors.claim(CONSUMER, self._reader))
            except UnknownConsumerError:  # it was deleted: begin at the head of the log
                await self._store.make_consumer()
                claim = await stack.enter_async_context(self._cursors.claim(CONSUMER, self._reader))
            if claim.events_table is not None:
                raise WrongConsumerKindError(
                    f"consumer {CONSUMER} reads {claim.events_table}, and these clients the default events table; "
                    f"delete it: `pipeline consumers delete {CONSUMER}`"
                )
            yield claim

    async def _wait(self, claim: CursorClaim) -> None:
        changed = asyncio.ensure_future(self._changed.wait())
        either: list[asyncio.Future[Any]] = [changed, claim.ended]
        await asyncio.wait(either, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()
        self._changed.clear()
        if claim.ended.done():
            raise claim.ended.result()
        await self._store_states(claim)
        await self._write()
        if not self._closing:
            await asyncio.sleep(STORE_SECONDS)

    async def _store_states(self, claim: CursorClaim) -> None:
        left = [*self._left]
        changed = (each.changed_state() for each in self._sessions if each.claim is claim)
        states = [*left, *(state for state in changed if state is not None)]
        if states:
            claim.position = await self._store.store_states(claim.session, states)
            del self._left[: len(left)]
        if left:
            self._holds.wake()

    async def _write(self) -> None:
        """Do the pending writes. A write that fails stays, and is tried again."""
        while self._writes:
            await self._writes[0]()
            del self._writes[0]


def _reason(error: Exception) -> PipelineError:
    """Return the error for clients whose sessions cannot continue: they reconnect after any error."""
    known = refusals.for_reader(error)
    if isinstance(known, CursorHeldError):
        return DatabaseUnavailableError(f"this wire is served by one process at a time: {known}")
    if known is None:
        refusals.log_unexpected(error, "walstream.failed")
        return DatabaseUnavailableError("an unexpected error; see the server's log")
    return known


class HoldCounter:
    """Counts the seconds of holds down until `close`, including holds of earlier processes.

    The hold of an ended session keeps the position for a minute in which the wire is served. Clients have no names, so
    a new session may belong to any client that has gone. It begins at the lowest acknowledged position.
    """

    def __init__(self, store: WalstreamStore, claim: Callable[[], str | None]) -> None:
        """`claim`: returns the claim by which this process reads the cursor now."""
        self._store, self._claim = store, claim
        self._changed = asyncio.Event()
        self._task = supervised.start_task("walstream holds", self._run)

    def wake(self) -> None:
        """Look for holds now, because a session may have left one."""
        self._changed.set()

    def close(self) -> None:
        """Stop counting: the next process that serves the wire continues with the remaining seconds."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                remaining, ended = await self._store.count(self._claim(), HOLD_SECONDS, COUNT_SECONDS)
                for each in ended:
                    _report(each)
            except ConsumerError:  # another process counts, or there is no consumer
                remaining = 0
            except (psycopg.Error, PipelineError, OSError):
                remaining = 1  # unknown: ask again soon
            if remaining:
                await asyncio.sleep(COUNT_SECONDS)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._changed.wait()


def _report(ended: EndedHold) -> None:
    if ended.unacknowledged:
        logger.warning(
            "a walstream client (%s) has not come back within %g s: %s that it had not acknowledged may not come again",
            ended.peer,
            HOLD_SECONDS,
            printable.count(ended.unacknowledged, "event"),
            extra={"action": "walstream.given_up", "unacknowledged": ended.unacknowledged},
        )
