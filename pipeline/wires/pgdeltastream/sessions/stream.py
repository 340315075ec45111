"""Streams a session's slot to one client: sends frames, and receives acknowledgements."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline.capture.replication.progress_reporter import ProgressReporter
from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError, PipelineError, PublicationMissingError, SessionGoneError
from pipeline.postgres import connections, queries
from pipeline.process.signals import in_thread
from pipeline.wal import pgoutput
from pipeline.wal.messages import RelationMessage, TypeMessage
from pipeline.wires.pgdeltastream.sessions import opening
from pipeline.wires.pgdeltastream.sessions.catalog import TypeCatalog
from pipeline.wires.pgdeltastream.sessions.frames import FrameBuilder
from pipeline.wires.pgdeltastream.sessions.opening import OpenedStream
from pipeline.wires.pgdeltastream.sessions.progress import SessionProgress
from pipeline.wires.pgdeltastream.sessions.store import StoredSession

logger = logging.getLogger(__name__)

Lend = Callable[[], AbstractAsyncContextManager[AsyncConnection[TupleRow]]]
"""Lends a connection to the pipeline database in autocommit mode."""

GATHER_SECONDS = 0.0
"""Frames are sent at once: the worker's pause of 3 ms would be most of a client's waiting time."""
SLICE_MESSAGES, SLICE_BYTES = 200, 1 << 19
"""Messages and bytes that are decoded before other tasks of the event loop have their turn: a few milliseconds."""
TOUCH_SECONDS = 60.0
"""How often a stream records that its session is in use."""
_LOOK_SECONDS = 1.0
_LEAVE_SECONDS = 5.0
"""How long the database may take to store the last acknowledgements of a client that leaves."""
_RELATION, _TYPE = b"RY"


class SessionStream:
    """A client's stream: `open` it, iterate over `frames`, call `acknowledge` in between, and always `close` it."""

    def __init__(self, config: Config, session: StoredSession, lend: Lend, reader: str, opened: OpenedStream) -> None:
        """Use `open` instead."""
        self._config, self._session, self._lend, self._reader = config, session, lend, reader
        self._stream, self._own = opened.stream, opened.own
        self._catalog = TypeCatalog(opened.source, config.source)
        self._progress = SessionProgress(opened.position, time.monotonic())
        self._frames = FrameBuilder(opened.position, self._progress.begin, self._progress.end)
        self._reporter = ProgressReporter(self._stream, self._progress.rule, lambda: self._progress.begun)
        self._storing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._touched_at = time.monotonic()
        self.ended: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        """Why the stream has ended by itself. `frames` raises this, too, but only when its consumer asks for more."""
        acts = (self._store, self._reporter.keep_reporting)
        self._tasks = [asyncio.create_task(self._guard(act())) for act in acts]

    @classmethod
    async def open(cls, config: Config, session: StoredSession | None, lend: Lend, reader: str) -> SessionStream:
        """Begin to stream from the acknowledged position. `reader`: the name by which reports show the client.

        Raises within 5 s UnknownSessionError; SessionHeldError with its reader, SessionGoneError with the reason, or
        DatabaseUnavailableError.
        """
        opened = await in_thread(opening.begin, config, session, reader, GATHER_SECONDS)
        assert session is not None  # noqa: S101  else `begin` has raised UnknownSessionError
        made = cls(config, session, lend, reader, opened)
        opened.stream.join_loop()
        made._catalog.watch(made._lost)
        extra = {"action": "session.started", "session": session.slot, "reader": reader}
        logger.info("session %s streams to %s", session.slot, reader, extra=extra)
        return made

    async def frames(self) -> AsyncIterator[list[bytes]]:
        """Yield frames as UTF-8 text, in order, as soon as there are any.

        A list is emptied when the next one is requested.

        Nothing more is read from the source until then. Raises SessionGoneError with the reason,
        DatabaseUnavailableError, or another ReplicationError.
        """
        try:
            while True:
                for data in await self._stream.read(SLICE_MESSAGES, room=SLICE_BYTES):
                    await self._receive(data)
                if frames := self._frames.take_frames():
                    texts = [frame.text for frame in frames]
                    if ends := [frame.end for frame in frames if frame.end is not None]:
                        self._progress.sent(ends[-1])
                    del frames
                    yield texts
                    texts.clear()  # frees 16 MB before the next 16 MB are built
                await asyncio.sleep(0)
        except Exception as error:
            await self._fail(error)
            reason = self.ended.result()
            if reason is error:
                raise
            raise reason from error

    def acknowledge(self, lsn_text: str) -> None:
        """Acknowledge what ends at or before that LSN: the position is soon stored durably.

        A text that is no LSN, goes back, or is beyond the last frame that was sent is ignored.
        """
        if self._progress.acknowledge(lsn_text):
            self._changed.set()

    async def close(self) -> None:
        """Store what was acknowledged, and release the slot and the session."""
        with suppress(psycopg.Error, OSError, TimeoutError, PipelineError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._store_acknowledged()
        if not self.ended.done():
            self.ended.set_result(DatabaseUnavailableError("the stream was closed"))
        for task in self._tasks:
            task.cancel()
        self._disconnect()
        with suppress(psycopg.Error, OSError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._execute("release_session", reader=self._reader)
        extra = {"action": "session.closed", "session": self._session.slot, "reader": self._reader}
        logger.info("session %s no longer streams to %s", self._session.slot, self._reader, extra=extra)

    async def _receive(self, data: bytes) -> None:
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
        if isinstance(message, TypeMessage):
            self._catalog.name(message)
        elif isinstance(message, RelationMessage):
            if self._own.includes(message.schema, [f"{message.schema}.{message.name}"]):
                self._frames.ignore(message.oid)
            else:
                self._frames.learn(message, await self._catalog.types(message))

    def _keepalive(self, data: bytes) -> None:
        wal_end, asked = pgoutput.decode_keepalive(data)
        self._reporter.received = max(self._reporter.received, wal_end)
        waits = self._progress.keepalive(wal_end, asked=asked, now=time.monotonic())
        if asked:
            self._reporter.send()
            self._changed.set()
        if waits:
            raise DatabaseUnavailableError("the source shuts down and waits for acknowledgements; connect again")

    async def _store(self) -> None:
        """Store the position as it moves, and then confirm it.

        Acknowledgements that arrive meanwhile are stored together.
        """
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
            self._reporter.confirm(position)

    async def _say(self, statement: str, **values: int) -> None:
        """Run a statement of the session. Raises SessionGoneError if the session has ended."""
        state = await self._execute(statement, **values)
        self._touched_at = time.monotonic()
        if state != "ready":
            raise SessionGoneError("it has ended")

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

    def _lost(self, error: DatabaseUnavailableError) -> None:
        """The source ends ordinary connections first when it shuts down; the walsender would wait for the client."""
        self._tasks.append(asyncio.create_task(self._fail(error)))

    async def _fail(self, error: Exception) -> None:
        """Release the slot, and report the reason."""
        if self.ended.done():
            return
        self._disconnect()
        reason = await self._reason(error)
        if not self.ended.done():
            self.ended.set_result(reason)
        self._stream.end(reason)

    async def _reason(self, error: Exception) -> Exception:
        """Return the reason of an error: that of the session's end, if it has ended, because any error may follow."""
        with suppress(psycopg.Error, OSError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                if reason := await self._execute("session_reason"):
                    return opening.gone(self._session, str(reason))
        if isinstance(error, PublicationMissingError):
            return opening.gone(self._session, "a publication that it needs was dropped or recreated")
        if isinstance(error, psycopg.Error) and not connections.is_ours(error):
            return connections.unavailable(self._config.database, "pipeline database", error)
        return error

    def _disconnect(self) -> None:
        self._stream.close()
        self._catalog.close()
