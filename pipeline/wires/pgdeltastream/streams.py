"""Streams of sessions over WebSocket: frames out, acknowledgements in, and at the end a close code with the reason."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any, NoReturn

from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect

from pipeline import refusals
from pipeline.api import access
from pipeline.api.problems import explain
from pipeline.api.wire import WireResources
from pipeline.errors import (
    DatabaseUnavailableError,
    PipelineError,
    SessionGoneError,
    SessionHeldError,
    UnknownSessionError,
)
from pipeline.wires.pgdeltastream import answers
from pipeline.wires.pgdeltastream.sessions.snapshot import SnapshotRegistry
from pipeline.wires.pgdeltastream.sessions.store import WireSessions
from pipeline.wires.pgdeltastream.sessions.stream import SessionStream

logger = logging.getLogger(__name__)

FIND_SECONDS = 4.0
"""How long the pipeline database has to find a session; the start of its stream has another limit."""
POLICY, SERVER_ERROR, RESTART = 1008, 1011, 1012
UNKNOWN, HELD, GONE = 4404, 4409, 4410
"""Close codes: the first line of RFC 6455, the second of the stream of events."""
_CODES: dict[type[PipelineError], int] = {UnknownSessionError: UNKNOWN, SessionHeldError: HELD, SessionGoneError: GONE}
_AWAY = "the source or the pipeline database is not available; connect again"
_CANNOT = "the server cannot stream it; its log says why"
_FAREWELL_SECONDS = 2.0
_LEAVING_SECONDS = 3.0


class StreamClosedError(Exception):
    """The server ends the stream with this close code; the message is for the client."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class ClientStreams:
    """The streams of all clients of this process."""

    def __init__(self, resources: WireResources, sessions: WireSessions, snapshots: SnapshotRegistry) -> None:
        self._config = resources.config
        self._database = resources.database
        self._server = resources.server
        self._sessions = sessions
        self._snapshots = snapshots
        self._leaving = asyncio.Event()
        self._running: set[asyncio.Task[Any]] = set()

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one stream until it ends, and send the client the reason."""
        slot = websocket.query_params.get("slotName")
        if not slot:
            await websocket.send_denial_response(answers.refused(400, answers.NO_SLOT))
            return
        task = asyncio.create_task(self._serve(websocket, slot))
        self._running.add(task)
        try:
            await task
        finally:
            self._running.discard(task)

    async def close(self) -> None:
        """End all streams, each with its reason."""
        self._leaving.set()
        if self._running:
            await asyncio.wait(self._running, timeout=_LEAVING_SECONDS)

    async def _serve(self, websocket: WebSocket, slot: str) -> None:
        with suppress(WebSocketDisconnect, OSError):
            offered = websocket.scope["subprotocols"]
            await websocket.accept(access.SUBPROTOCOL if access.SUBPROTOCOL in offered else None)
            try:
                await self._run(websocket, slot)
            except WebSocketDisconnect:
                raise
            except Exception as error:
                code, reason = _closing(error)
                logger.info("close code %d: %s", code, reason, extra={"action": "session.stream_ended"})
                await _farewell(websocket, code, reason)

    async def _run(self, websocket: WebSocket, slot: str) -> None:
        stream = await self._opened(websocket, slot)
        try:
            await _Stream(websocket, stream).run(self._leaving)
        finally:
            await stream.close()  # before the client learns of the end, because it may reconnect at once

    async def _opened(self, websocket: WebSocket, slot: str) -> SessionStream:
        peer = f"{websocket.client.host}:{websocket.client.port}" if websocket.client else "a local client"
        try:
            async with asyncio.timeout(FIND_SECONDS):
                session = await self._sessions.find(slot)
        except TimeoutError:
            raise DatabaseUnavailableError("the pipeline database does not answer; connect again") from None
        if session is None:
            raise UnknownSessionError(f"there is no session {slot[:63]}; GET /v1/init makes one")
        self._snapshots.end(session.slot)
        reader = f"{peer} through server {self._server}"
        return await SessionStream.open(self._config, session, self._database.connection, reader)


class _Stream:
    """The stream of one client: sends and receives concurrently, so that neither waits for the other."""

    def __init__(self, websocket: WebSocket, stream: SessionStream) -> None:
        self._websocket = websocket
        self._stream = stream

    async def run(self, leaving: asyncio.Event) -> None:
        """Send and receive until one side ends the stream. Raises the reason."""
        receives, *_ = tasks = [asyncio.create_task(act) for act in (self._receive(), self._send(), _leave(leaving))]
        try:
            either: list[asyncio.Future[Any]] = [*tasks, self._stream.ended]
            done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if any(isinstance(task.exception(), WebSocketDisconnect) for task in done & {*tasks}):
                await asyncio.wait([receives], timeout=_FAREWELL_SECONDS)  # what was acknowledged before counts
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if task in done:
                task.result()
        raise self._stream.ended.result()

    async def _send(self) -> NoReturn:
        async for frames in self._stream.frames():
            await self._websocket.send({"type": "websocket.send", "texts": frames})  # waits for a slow client
        raise DatabaseUnavailableError("the source has ended the stream; connect again")

    async def _receive(self) -> NoReturn:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code") or 1005)
            text = message.get("text")
            if text is None:
                raise StreamClosedError(POLICY, "frames must be text, not binary")
            if (lsn := acknowledged(text)) is not None:
                self._stream.acknowledge(lsn)


def acknowledged(text: str) -> str | None:
    """Return the LSN that a client's frame acknowledges; None for an object without `lsn`.

    Raises StreamClosedError for anything else.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise StreamClosedError(
            POLICY, 'expected a JSON object such as {"lsn": "0/16B3748"}; this is not JSON'
        ) from None
    if not isinstance(content, dict):
        raise StreamClosedError(POLICY, 'expected a JSON object such as {"lsn": "0/16B3748"}')
    lsn = content.get("lsn", "")
    if not isinstance(lsn, str):
        raise StreamClosedError(POLICY, '"lsn" must be a text, such as "0/16B3748"')
    return lsn or None


async def _leave(leaving: asyncio.Event) -> NoReturn:
    await leaving.wait()
    raise StreamClosedError(RESTART, "the server is stopping; connect again")


def _closing(error: Exception) -> tuple[int, str]:
    """Return the close code and the reason for the error that ended a stream, without addresses of databases."""
    if isinstance(error, StreamClosedError):
        return error.code, str(error)
    known, code = refusals.for_reader(error), next((_CODES[kind] for kind in _CODES if isinstance(error, kind)), None)
    if code is not None:
        return code, str(error)
    away = isinstance(known, DatabaseUnavailableError)
    logger.log(
        logging.WARNING if away else logging.ERROR,
        "a session cannot be streamed: %s",
        explain(error) if known is None else known,
        extra={"action": "session.unavailable" if away else "session.failed"},
    )
    return (RESTART, _AWAY) if away else (SERVER_ERROR, _CANNOT)


async def _farewell(websocket: WebSocket, code: int, reason: str) -> None:
    """Close with as much of the reason as fits. Does not wait for a client that has stopped reading."""
    with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
        async with asyncio.timeout(_FAREWELL_SECONDS):
            await websocket.close(code, reason.encode()[:123].decode(errors="ignore"))
