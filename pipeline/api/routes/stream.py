"""A cursor over WebSocket: events or whole transactions as they come, acknowledgements back."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, NoReturn

import psycopg
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from pipeline.api import auth
from pipeline.api.database import Database
from pipeline.api.problems import UNEXPECTED
from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.readers import refusals
from pipeline.readers.cursor import frames
from pipeline.readers.cursor.feed import Feed, Follower
from pipeline.readers.cursor.leases import Claim, Cursors
from pipeline.readers.wakeups import Wakeups

logger = logging.getLogger(__name__)

ACKNOWLEDGE_SECONDS = 0.1
"""Acknowledgements of one client are stored so often at most, the newest for all."""
IDLE_SECONDS = 30.0
"""How often the position of a client that has acknowledged all it got moves over what its filter leaves out."""
_FAREWELL_SECONDS = 2.0


def router(config: Config, database: Database, wakeups: Wakeups, server: str) -> APIRouter:
    """The endpoint `/v1/consumers/{name}/stream`. `server`: this server's name, for who finds a cursor taken."""
    routes = APIRouter()
    streams = _Streams(
        Cursors(config.database, database.transaction), Feed(config.database, wakeups, database.transaction), server
    )

    @routes.websocket("/v1/consumers/{name}/stream")
    async def stream(websocket: WebSocket, name: str) -> None:
        offered = websocket.scope["subprotocols"]
        with suppress(WebSocketDisconnect, OSError):
            await websocket.accept(auth.SUBPROTOCOL if auth.SUBPROTOCOL in offered else None)
            await streams.serve(websocket, name)

    return routes


class _Streams:
    """All streams of this process."""

    def __init__(self, cursors: Cursors, feed: Feed, server: str) -> None:
        self._cursors = cursors
        self._feed = feed
        self._server = server

    async def serve(self, websocket: WebSocket, name: str) -> None:
        """One stream until its end; the client is told why it ends."""
        try:
            await self._run(websocket, name)
        except frames.BadFrame as error:
            await _farewell(websocket, error.code, str(error))
        except WebSocketDisconnect:
            raise
        except Exception as error:
            if (known := refusals.for_reader(error)) is not None:
                await _farewell(websocket, refusals.meaning(known).close_code, str(known))
                return
            logger.exception("a stream failed", extra={"action": "stream.failed"})
            await _farewell(websocket, frames.SERVER_ERROR, UNEXPECTED)

    async def _run(self, websocket: WebSocket, name: str) -> None:
        options = frames.Options.parse(websocket.query_params)
        peer = f"{websocket.client.host}:{websocket.client.port}" if websocket.client else "a local client"
        async with (
            self._cursors.claim(name, f"{peer} through server {self._server}") as claim,
            self._feed.follower(claim.wanted, claim.position) as follower,
        ):
            await _Stream(websocket, self._cursors, claim, follower, options).run()


class _Stream:
    """One client: sends, receives and stores acknowledgements side by side, so that none waits for another."""

    def __init__(
        self, websocket: WebSocket, cursors: Cursors, claim: Claim, follower: Follower, options: frames.Options
    ) -> None:
        self._websocket = websocket
        self._cursors = cursors
        self._claim = claim
        self._follower = follower
        self._acknowledgements = frames.Acknowledgements(claim.position, options.mode)
        self._frames = (frames.EventFrames if options.mode == "events" else frames.TransactionFrames)(
            options.max_events
        )
        self._wanted: int | None = None
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Until one side ends it. Raises what ended it."""
        await self._websocket.send_text(frames.ready(self._claim.position))
        tasks = [asyncio.create_task(act) for act in (self._receive(), self._send(), self._acknowledge())]
        try:
            either: list[asyncio.Future[Any]] = [*tasks, self._claim.ended]
            done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if any(isinstance(task.exception(), WebSocketDisconnect) for task in done & {*tasks}):
                await asyncio.wait(tasks[:1], timeout=_FAREWELL_SECONDS)  # what it said before it hung up counts
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(PipelineError, psycopg.Error, OSError):
            await self._store()
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
                raise frames.BadFrame(frames.NOT_SUPPORTED, "frames are text, not binary")
            position = self._acknowledgements.position(frames.acknowledged_seq(text))
            self._wanted = max(position or 0, self._wanted or 0)
            self._news.set()

    async def _send(self) -> None:
        async for batch in self._follower.batches():
            await self._claim.active()
            for frame in self._frames.add(batch.entries, whole=batch.whole):
                self._acknowledgements.sent(frame)
                await self._websocket.send_text(frame.text)  # waits while the client has enough to read

    async def _acknowledge(self) -> NoReturn:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), IDLE_SECONDS)
            self._news.clear()
            if self._wanted is None:
                await self._pass_over()
            elif (position := await self._store()) is not None:
                await self._websocket.send_text(frames.acknowledged(position))
            await asyncio.sleep(ACKNOWLEDGE_SECONDS)

    async def _store(self) -> int | None:
        """Store the newest acknowledgement; where the position is then. What is cancelled may be done again."""
        wanted = self._wanted
        if wanted is None:
            return None
        if wanted > self._claim.position:
            await self._cursors.advance(self._claim, wanted)
        if self._wanted == wanted:
            self._wanted = None
        else:
            self._news.set()
        return self._claim.position

    async def _pass_over(self) -> None:
        """Who has acknowledged everything has dealt with what was not for it, too; retention need not wait for it."""
        passed = self._follower.position
        if self._acknowledgements.last <= self._claim.position < passed and not self._frames.has_pending:
            await self._cursors.advance(self._claim, passed)


async def _farewell(websocket: WebSocket, code: int, sentence: str) -> None:
    """Say why, and close. A client that does not read is not waited for."""
    with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
        async with asyncio.timeout(_FAREWELL_SECONDS):
            await websocket.send_text(frames.error(sentence))
            await websocket.close(code, frames.close_reason(sentence))
