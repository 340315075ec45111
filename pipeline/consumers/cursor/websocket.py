"""A cursor over WebSocket: sends events or whole transactions as they arrive, receives acknowledgements."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, NoReturn

import psycopg
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from pipeline import close_codes, refusals
from pipeline.api import access
from pipeline.api.problems import UNEXPECTED
from pipeline.config.settings import Config
from pipeline.consumers.cursor import frames
from pipeline.consumers.cursor.acknowledged_position import AcknowledgementTracker
from pipeline.consumers.cursor.claims import CursorClaim
from pipeline.consumers.cursor.feed import FeedFollower, LogFeed
from pipeline.consumers.cursor.leases import CursorLeases
from pipeline.consumers.cursor.reading import CursorReading
from pipeline.errors import PipelineError, WrongArgumentError
from pipeline.log import shapes
from pipeline.log.entry import JsonEvent
from pipeline.log.table import EventsTable
from pipeline.log.wakeups import WakeupListener
from pipeline.postgres.pool import Pool

logger = logging.getLogger(__name__)

ACKNOWLEDGE_SECONDS = 0.1
"""One client's acknowledgements are stored at most so often; the newest covers all before it."""
_FAREWELL_SECONDS = 2.0


def router(config: Config, database: Pool, wakeups: WakeupListener, cursors: CursorLeases, server: str) -> APIRouter:
    """The endpoint `/v1/consumers/{name}/stream`. `server`: this server's name, shown to clients refused a cursor."""
    routes = APIRouter()
    streams = _Streams(cursors, FeedRegistry(config, database, wakeups), server)

    @routes.websocket("/v1/consumers/{name}/stream")
    async def stream(websocket: WebSocket, name: str) -> None:
        offered = websocket.scope["subprotocols"]
        with suppress(WebSocketDisconnect, OSError):
            await websocket.accept(access.SUBPROTOCOL if access.SUBPROTOCOL in offered else None)
            await streams.serve(websocket, name)

    return routes


class FeedRegistry:
    """The feeds of this process, one for each events table that a consumer reads."""

    def __init__(self, config: Config, database: Pool, wakeups: WakeupListener) -> None:
        self._config = config
        self._database = database
        self._wakeups = wakeups
        self._known: dict[str | None, LogFeed[JsonEvent]] = {}

    def of(self, events_table: str | None) -> LogFeed[JsonEvent]:
        """The feed of an events table; None: of the default one."""
        if events_table not in self._known:
            named = events_table or self._config.events_table
            pages = shapes.JSON if events_table is None else shapes.json_of(EventsTable.parse(named).identifier)
            lend = self._database.connection
            self._known[events_table] = LogFeed(self._config.database, self._wakeups, lend, pages, named)
        return self._known[events_table]


class _Streams:
    """All streams of this process."""

    def __init__(self, cursors: CursorLeases, feeds: FeedRegistry, server: str) -> None:
        self._cursors = cursors
        self._feeds = feeds
        self._server = server

    async def serve(self, websocket: WebSocket, name: str) -> None:
        """Serve one stream until it ends; the client is told why."""
        try:
            await self._run(websocket, name)
        except frames.BadFrameError as error:
            await _farewell(websocket, error.code, str(error))
        except WebSocketDisconnect:
            raise
        except Exception as error:
            if (known := refusals.for_reader(error)) is not None:
                await _farewell(websocket, refusals.codes(known).close_code, str(known))
                return
            logger.exception("a stream failed", extra={"action": "stream.failed"})
            await _farewell(websocket, close_codes.SERVER_ERROR, UNEXPECTED)

    async def _run(self, websocket: WebSocket, name: str) -> None:
        options = frames.StreamOptions.parse(websocket.query_params)
        peer = f"{websocket.client.host}:{websocket.client.port}" if websocket.client else "a local client"
        async with (
            self._cursors.claim(name, f"{peer} through server {self._server}") as claim,
            self._feeds.of(claim.events_table).follower(claim.wanted, claim.position) as follower,
        ):
            await _Stream(websocket, self._cursors, claim, follower, options).run()


class _Stream:
    """One client: sends, receives and stores acknowledgements concurrently, so that none waits for another."""

    def __init__(
        self,
        websocket: WebSocket,
        cursors: CursorLeases,
        claim: CursorClaim,
        follower: FeedFollower[JsonEvent],
        options: frames.StreamOptions,
    ) -> None:
        self._websocket = websocket
        self._claim = claim
        self._follower = follower
        self._frames = (frames.EventFrames if options.mode == "events" else frames.TransactionFrames)(
            options.max_events
        )
        acknowledgements = AcknowledgementTracker(claim.position, whole=options.mode == "transactions")
        self._reading = CursorReading(cursors, claim, follower, acknowledgements, lambda: self._frames.has_pending)

    async def run(self) -> None:
        """Run until one side ends it. Raises the error that ended it."""
        await self._websocket.send_text(frames.ready(self._claim.position))
        tasks = [asyncio.create_task(act) for act in (self._receive(), self._send(), self._acknowledge())]
        try:
            either: list[asyncio.Future[Any]] = [*tasks, self._claim.ended]
            done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if any(isinstance(task.exception(), WebSocketDisconnect) for task in done & {*tasks}):
                await asyncio.wait(tasks[:1], timeout=_FAREWELL_SECONDS)  # acknowledgements before the disconnect count
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(PipelineError, psycopg.Error, OSError):
            await self._reading.store()
        if self._claim.ended in done:
            raise self._claim.ended.result()
        for task in tasks:
            if task in done:
                task.result()

    async def _receive(self) -> NoReturn:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code") or 1005)
            text = message.get("text")
            if text is None:
                raise frames.BadFrameError(close_codes.NOT_SUPPORTED, "frames must be text, not binary")
            try:
                self._reading.acknowledge(frames.acknowledged_seq(text))
            except WrongArgumentError as error:
                raise frames.BadFrameError(close_codes.POLICY, f'"ack": {error}') from None

    async def _send(self) -> None:
        async for batch in self._follower.batches():
            await self._claim.active()
            for frame in self._frames.add(batch.entries, whole=batch.whole):
                self._reading.sent(frame.seq, ends=frame.ends)
                await self._websocket.send_text(frame.text)  # waits while the client has enough to read

    async def _acknowledge(self) -> NoReturn:
        while True:
            await self._reading.acknowledged()
            if (position := await self._reading.store()) is not None:
                await self._websocket.send_text(frames.acknowledged(position))
            await asyncio.sleep(ACKNOWLEDGE_SECONDS)


async def _farewell(websocket: WebSocket, code: int, sentence: str) -> None:
    """Send the reason, and close. Does not wait for a client that does not read."""
    with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
        async with asyncio.timeout(_FAREWELL_SECONDS):
            await websocket.send_text(frames.error(sentence))
            await websocket.close(code, frames.close_reason(sentence))
