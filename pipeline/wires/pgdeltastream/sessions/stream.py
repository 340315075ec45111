"""One client's stream from its session's slot: frames out, acknowledgements in."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline.capture.replication.feedback import Feedback
from pipeline.config.settings import Config
from pipeline.errors import PipelineError, PublicationMissing, SessionGone, Unavailable
from pipeline.postgres import connections, queries
from pipeline.process.signals import in_thread
from pipeline.wal import pgoutput
from pipeline.wal.messages import Relation, Type
from pipeline.wires.pgdeltastream.sessions import opening
from pipeline.wires.pgdeltastream.sessions.catalog import Catalog
from pipeline.wires.pgdeltastream.sessions.frames import Frames
from pipeline.wires.pgdeltastream.sessions.opening import Opened
from pipeline.wires.pgdeltastream.sessions.progress import Progress
from pipeline.wires.pgdeltastream.sessions.store import Session

logger = logging.getLogger(__name__)

Lend = Callable[[], AbstractAsyncContextManager[AsyncConnection[TupleRow]]]
"""Lends a connection to the pipeline database whose statements are transactions of their own."""

GATHER_SECONDS = 0.0
"""Frames are sent as they come: the worker's pause of 3 ms would be most of what a client waits for."""
SLICE_MESSAGES, SLICE_BYTES = 200, 1 << 19
"""So much is decoded before other tasks of the event loop have their turn: a few milliseconds."""
TOUCH_SECONDS = 60.0
"""How often a stream says that its session is in use."""
_LOOK_SECONDS = 1.0
_LEAVE_SECONDS = 5.0
"""What a client has acknowledged just before it left is stored, unless the database takes longer than this."""
_RELATION, _TYPE = b"RY"


class SessionStream:
    """Open it, iterate over `frames`, call `acknowledge` for what the client says meanwhile; always `close`."""

    def __init__(self, config: Config, session: Session, lend: Lend, reader: str, opened: Opened) -> None:
        """`open` makes one."""
        self._config, self._session, self._lend, self._reader = config, session, lend, reader
        self._stream, self._own = opened.stream, opened.own
        self._catalog = Catalog(opened.source, config.source)
        self._progress = Progress(opened.position, time.monotonic())
        self._frames = Frames(opened.position, self._progress.begin, self._progress.end)
        self._feedback = Feedback(self._stream, self._progress.rule, lambda: self._progress.begun)
        self._storing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._touched_at = time.monotonic()
        self.ended: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        """Why the stream has ended by itself, which `frames` raises too, but not before its consumer asks for more."""
        acts = (self._store, self._feedback.keep_reporting)
        self._tasks = [asyncio.create_task(self._guard(act())) for act in acts]

    @classmethod
    async def open(cls, config: Config, session: Session | None, lend: Lend, reader: str) -> SessionStream:
        """Begin to stream from where the client has acknowledged. `reader`: how others see it, while it reads.

        Raises within 5 s SessionUnknown; SessionHeld, which says who has it; SessionGone, which says why; Unavailable.
        """
        opened = await in_thread(opening.begin, config, session, reader, GATHER_SECONDS)
        assert session is not None  # noqa: S101  or it is unknown
        made = cls(config, session, lend, reader, opened)
        opened.stream.attach()
        made._catalog.watch(made._lost)
        extra = {"action": "session.started", "session": session.slot, "reader": reader}
        logger.info("session %s streams to %s", session.slot, reader, extra=extra)
        return made

    async def frames(self) -> AsyncIterator[list[bytes]]:
        """Frames as UTF-8 text, in order, as soon as there are any; a list is emptied when the next one is asked for.

        Nothing more is read from the source until then. Raises SessionGone with the reason, Unavailable, or another
        ReplicationError.
        """
        try:
            while True:
                for data in await self._stream.read(SLICE_MESSAGES, room=SLICE_BYTES):
                    await self._take(data)
                if frames := self._frames.take():
                    texts = [frame.text for frame in frames]
                    if ends := [frame.end for frame in frames if frame.end is not None]:
                        self._progress.sent(ends[-1])
                    del frames
                    yield texts
                    texts.clear()  # 16 MB, while the next 16 MB are made
                await asyncio.sleep(0)
        except Exception as error:
            await self._fail(error)
            reason = self.ended.result()
            if reason is error:
                raise
            raise reason from error

    def acknowledge(self, lsn_text: str) -> None:
        """The client has what ends at or before that LSN: the position moves at once, durably.

        What is no LSN, goes back, or goes beyond what was sent moves nothing.
        """
        if self._progress.acknowledge(lsn_text):
            self._changed.set()

    async def close(self) -> None:
        """Store what was acknowledged, and let go of the slot and the session."""
        with suppress(psycopg.Error, OSError, TimeoutError, PipelineError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._store_acknowledged()
        if not self.ended.done():
            self.ended.set_result(Unavailable("the stream was closed"))
        for task in self._tasks:
            task.cancel()
        self._disconnect()
        with suppress(psycopg.Error, OSError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._execute("release_session", reader=self._reader)
        extra = {"action": "session.closed", "session": self._session.slot, "reader": self._reader}
        logger.info("session %s no longer streams to %s", self._session.slot, self._reader, extra=extra)

    async def _take(self, data: bytes) -> None:
        kind = data[0]
        if kind == pgoutput.XLOG_DATA:
            at = pgoutput.XLOG_HEADER
            if data[at] == _RELATION or data[at] == _TYPE:
                await self._learn(data)
            else:
                self._frames.feed(data, at)
        elif kind == pgoutput.KEEPALIVE:
            self._keepalive(data)

    async def _learn(self, data: bytes) -> None:
        message = pgoutput.decode(data, pgoutput.XLOG_HEADER)
        if isinstance(message, Type):
            self._catalog.name(message)
        elif isinstance(message, Relation):
            if self._own.includes(message.schema, [f"{message.schema}.{message.name}"]):
                self._frames.ignore(message.oid)
            else:
                self._frames.learn(message, await self._catalog.types(message))

    def _keepalive(self, data: bytes) -> None:
        wal_end, asked = pgoutput.decode_keepalive(data)
        self._feedback.received = max(self._feedback.received, wal_end)
        waits = self._progress.keepalive(wal_end, asked=asked, now=time.monotonic())
        if asked:
            self._feedback.send()
            self._changed.set()
        if waits:
            raise Unavailable("the source waits for what is not acknowledged: it shuts down; connect again")

    async def _store(self) -> None:
        """Store what is acknowledged, or passed over, and then confirm it; what comes meanwhile is stored together."""
        loop = asyncio.get_running_loop()
        while True:
            timer = loop.call_later(_LOOK_SECONDS, self._changed.set)
            await self._changed.wait()
            timer.cancel()
            self._changed.clear()
            await self._store_acknowledged()
            if (position := self._progress.due(time.monotonic())) is not None:
                await self._move(position)
            elif time.monotonic() - self._touched_at >= TOUCH_SECONDS:
                await self._say("touch_session")

    async def _store_acknowledged(self) -> None:
        while (position := self._progress.acknowledged) is not None:
            await self._move(position)

    async def _move(self, position: int) -> None:
        async with self._storing:
            if position <= self._progress.rule.confirmed:
                return
            await self._say("move_session", position=position)
            self._feedback.confirm(position)

    async def _say(self, statement: str, **values: int) -> None:
        """Raises SessionGone where the session has ended meanwhile."""
        state = await self._execute(statement, **values)
        self._touched_at = time.monotonic()
        if state != "ready":
            raise SessionGone("it has ended")

    async def _execute(self, name: str, **values: int | str) -> object:
        async with self._lend() as connection:
            given = {"id": self._session.id, **values}
            cursor = await connection.execute(queries.statement("wires.pgdeltastream.sessions", name), given)
            row = await cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    async def _guard(self, task: Coroutine[object, object, None]) -> None:
        try:
            await task
        except Exception as error:
            await self._fail(error)

    def _lost(self, error: Unavailable) -> None:
        """The source ends ordinary connections first when it shuts down; the walsender would wait for the client."""
        self._tasks.append(asyncio.create_task(self._fail(error)))

    async def _fail(self, error: Exception) -> None:
        """Let go of the slot, and say why."""
        if self.ended.done():
            return
        self._disconnect()
        reason = await self._reason(error)
        if not self.ended.done():
            self.ended.set_result(reason)
        self._stream.end(reason)

    async def _reason(self, error: Exception) -> Exception:
        """An end of the session may look like anything: its walsender was ended."""
        with suppress(psycopg.Error, OSError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                if reason := await self._execute("session_reason"):
                    return opening.gone(self._session, str(reason))
        if isinstance(error, PublicationMissing):
            return opening.gone(self._session, "a publication that it needs was dropped, or made anew")
        if isinstance(error, psycopg.Error) and not connections.is_ours(error):
            return connections.unavailable(self._config.database, "pipeline database", error)
        return error

    def _disconnect(self) -> None:
        self._stream.close()
        self._catalog.close()
