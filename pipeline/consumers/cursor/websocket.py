"""Serves cursors over WebSocket: sends events or whole transactions as they arrive, and receives acknowledgements."""

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
"""The least number of seconds between two writes of one client's position; the newest covers all earlier ones."""
_FAREWELL_SECONDS = 2.0


def router(config: Config, database: Pool, wakeups: WakeupListener, cursors: CursorLeases, server: str) -> APIRouter:
    """Return the endpoint `/v1/consumers/{name}/stream`. `server`: this server's name, for clients that are refused."""
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
    """The feeds of this process, one for each events table that clients read."""

    def __init__(self, config: Config, database: Pool, wakeups: WakeupListener) -> None:
        self._config = config
        self._database = database
        self._wakeups = wakeups
        self._feeds: dict[str | None, LogFeed[JsonEvent]] = {}

    def get_feed(self, events_table: str | None) -> LogFeed[JsonEvent]:
        """Return the feed of an events table. `events_table` None: the default one."""
        if events_table not in self._feeds:
            named = events_table or self._config.events_table
            pages = shapes.JSON if events_table is None else shapes.json_of(EventsTable.parse(named).identifier)
            lend = self._database.connection
            self._feeds[events_table] = LogFeed(self._config.database, self._wakeups, lend, pages, named)
        return self._feeds[events_table]


class _Streams:
    """All streams of this process."""

    def __init__(self, cursors: CursorLeases, feeds: FeedRegistry, server: str) -> None:
        self._cursors = cursors
        self._feeds = feeds
        self._server = server

    async def serve(self, websocket: WebSocket, name: str) -> None:
        """Serve one stream until it ends, and send the client the reason."""
        try:
            await self._serve_claimed(websocket, name)
        except frames.BadFrameError as error:
            await _send_reason(websocket, error.code, str(error))
        except WebSocketDisconnect:
            raise
        except Exception as error:
            if (known := refusals.for_reader(error)) is not None:
                await _send_reason(websocket, refusals.codes(known).close_code, str(known))
                return
            logger.exception("a stream failed", extra={"action": "stream.failed"})
            await _send_reason(websocket, close_codes.SERVER_ERROR, UNEXPECTED)

    async def _serve_claimed(self, websocket: WebSocket, name: str) -> None:
        options = frames.StreamOptions.parse(websocket.query_params)
        peer = f"{websocket.client.host}:{websocket.client.port}" if websocket.client else "a local client"
        async with (
            self._cursors.claim(name, f"{peer} through server {self._server}") as claim,
            self._feeds.get_feed(claim.events_table).follower(claim.event_filter, claim.position) as follower,
        ):
            await _Stream(websocket, self._cursors, claim, follower, options).run()


class _Stream:
    """The stream of one client. Its three tasks send events, receive acknowledgements, and store the position."""

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
        acknowledgements = AcknowledgementTracker(claim.position, by_transaction=options.mode == "transactions")
        self._reading = CursorReading(cursors, claim, follower, acknowledgements, lambda: self._frames.has_pending)

    async def run(self) -> None:
        """Serve the client until one side ends the stream. Raises the error that ended it."""
        await self._websocket.send_text(frames.ready_frame(self._claim.position))
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
                self._reading.acknowledge(frames.parse_acknowledgement(text))
            except WrongArgumentError as error:
                raise frames.BadFrameError(close_codes.POLICY, f'"ack": {error}') from None

    async def _send(self) -> None:
        async for batch in self._follower.batches():
            await self._claim.wait_until_active()
            for frame in self._frames.add(batch.entries, is_complete=batch.is_complete):
                self._reading.record_sent(frame.seq, ends=frame.ends)
                await self._websocket.send_text(frame.text)  # waits while the client has enough to read

    async def _acknowledge(self) -> NoReturn:
        while True:
            await self._reading.wait_for_acknowledgement()
            if (position := await self._reading.store()) is not None:
                await self._websocket.send_text(frames.acknowledged_frame(position))
            await asyncio.sleep(ACKNOWLEDGE_SECONDS)


async def _send_reason(websocket: WebSocket, code: int, sentence: str) -> None:
    """Send the reason, and close the stream. Does not wait long for a client that does not read."""
    with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
        async with asyncio.timeout(_FAREWELL_SECONDS):
            await websocket.send_text(frames.error_frame(sentence))
            await websocket.close(code, frames.close_reason(sentence))
