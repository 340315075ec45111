"""The endpoints of PG Delta Stream: begin a session, read its snapshot in pages, stream its slot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial

from fastapi import APIRouter, Request, Response, WebSocket
from psycopg_pool import PoolTimeout
from starlette.types import Receive, Scope, Send

from pipeline.api import http_protocol
from pipeline.api.background import BackgroundThreads
from pipeline.api.problems import explain
from pipeline.api.wire import WirePath, WireProtocol, WireResources
from pipeline.errors import DatabaseSilentError, SessionsFullError
from pipeline.postgres.silence import SilenceProbe
from pipeline.wires.pgdeltastream import answers, slot_names
from pipeline.wires.pgdeltastream.answers import JsonAnswer
from pipeline.wires.pgdeltastream.page_request import PageRequestError, SnapshotPageRequest
from pipeline.wires.pgdeltastream.sessions import creation, snapshot
from pipeline.wires.pgdeltastream.sessions.page_query import SnapshotPage
from pipeline.wires.pgdeltastream.sessions.snapshot import ExportedSnapshot, SnapshotRegistry
from pipeline.wires.pgdeltastream.sessions.store import WireSessions
from pipeline.wires.pgdeltastream.streams import ClientStreams

logger = logging.getLogger(__name__)

NAME = "pgdeltastream"
INIT, SNAPSHOT, STREAM = "/v1/init", "/v1/snapshot/data", "/v1/lr/stream"
MOST_INITS = 16
"""How many sessions are created in parallel; each waits for transactions at the source, in a thread."""
_NO_SESSION = "snapshot not available: call /init to initialize a new slot and snapshot"
_NO_INIT = "unable to init session"
_LOCAL = "local"
"""The address of all clients that connect through a Unix socket."""
_NO_ROWS = "unable to get snapshot data"


class DeltaStreamService:
    """The endpoints of this wire, with the snapshots and streams of this process."""

    def __init__(self, resources: WireResources) -> None:
        self._config = resources.config
        self._database = resources.database
        self._source = SilenceProbe(self._config.source, "source")
        self._reading = SilenceProbe(self._config.source_reading, "source")
        self._sessions = WireSessions(NAME, resources.database)
        self._snapshots = SnapshotRegistry()
        self._inits = BackgroundThreads(MOST_INITS)
        self._streams = ClientStreams(resources, self._sessions, self._snapshots)
        self.routes = APIRouter(include_in_schema=False)
        self.routes.add_api_route(INIT, self._init, methods=["GET"])
        self.routes.add_api_route(SNAPSHOT, self._page, methods=["POST"])
        self.routes.add_api_route(STREAM, self._no_upgrade, methods=["GET"])
        self.routes.add_api_websocket_route(STREAM, self._stream)

    async def close(self) -> None:
        """Answer waiting requests for sessions, close streams, and end snapshots."""
        self._inits.close()
        await self._streams.close()
        self._snapshots.close()

    async def _init(self, request: Request) -> Response:
        address = request.client.host if request.client else _LOCAL
        begin = partial(creation.create, self._config, NAME, slot_names.any_name, address)
        making = self._database.silence.unless_silent(
            self._inits.run(begin, ExportedSnapshot.close), ExportedSnapshot.close
        )
        try:
            exported = await self._source.unless_silent(making, ExportedSnapshot.close)
        except DatabaseSilentError as error:
            logger.warning("cannot create a session: %s", error, extra={"action": "session.refused"})
            return answers.refused(503, _NO_INIT)
        except SessionsFullError as error:
            logger.warning("cannot create a session: %s", error, extra={"action": "session.refused"})
            return answers.refused(503, f"{_NO_INIT}: {error}")
        except Exception as error:
            logger.warning("cannot create a session: %s", explain(error), extra={"action": "session.refused"})
            return answers.refused(500, _NO_INIT)
        self._snapshots.add(exported)
        return answers.JsonAnswer({"slotName": exported.session.slot})

    async def _page(self, request: Request) -> Response:
        try:
            newest = await self._sessions.newest()
            if newest is None:
                return answers.refused(503, _NO_SESSION)
            wanted = SnapshotPageRequest.parse(await request.body())
            session = newest if wanted.slot is None else await self._sessions.find(wanted.slot)
            if session is None:
                return answers.refused(503, _NO_SESSION)
            exported = self._snapshots.get(session.slot)
            if exported is None or not exported.alive or exported.session.id != session.id:
                return self._no_rows("its snapshot has ended, or another process holds it", session.slot)
            await self._sessions.touch(session)
        except PageRequestError as error:
            return answers.refused(400, str(error))
        except Exception as error:
            return self._failed(error)
        page = SnapshotPage(wanted.table, wanted.offset, wanted.limit, wanted.order_by)
        rows = snapshot.rows(self._config, exported, page, self._reading)
        return RowsResponse(rows, lambda error: self._failed(error, session.slot))

    def _failed(self, error: Exception, slot: str | None = None) -> Response:
        return self._no_rows(explain(error), slot, 503 if isinstance(error, DatabaseSilentError | PoolTimeout) else 500)

    def _no_rows(self, reason: str, slot: str | None = None, status: int = 500) -> Response:
        logger.warning(
            "cannot read rows from the snapshot of %s: %s",
            slot or "a session",
            reason,
            extra={"action": "session.no_rows"},
        )
        return answers.refused(status, _NO_ROWS)

    async def _no_upgrade(self, request: Request) -> Response:
        if request.query_params.get("slotName"):
            return answers.not_a_websocket()
        return answers.refused(400, answers.NO_SLOT)

    async def _stream(self, websocket: WebSocket) -> None:
        await self._streams.serve(websocket)


WIRE = WireProtocol(
    name="pgdeltastream",
    paths=(WirePath(INIT, get_changes=True), WirePath(SNAPSHOT), WirePath(STREAM)),
    forms={404: answers.no_page, 405: answers.no_page},
    otherwise=answers.error,
    serve=DeltaStreamService,
)


class RowsResponse(Response):
    """An answer of JSON in chunks.

    An error before the first chunk becomes the answer of `failed`; a later error cuts the
    connection. If the client disconnects, reading the chunks ends.
    """

    def __init__(self, chunks: AsyncGenerator[bytes, None], failed: Callable[[Exception], Response]) -> None:
        super().__init__(media_type=JsonAnswer.media_type)
        del self.headers["content-length"]
        self._chunks = chunks
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._chunks):
            sends = asyncio.create_task(self._send(scope, receive, send))
            gone = asyncio.create_task(_gone(receive))
            try:
                await asyncio.wait((sends, gone), return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended = sends.done()
                for task in (sends, gone):
                    task.cancel()
                await asyncio.gather(sends, gone, return_exceptions=True)
        if ended:
            sends.result()

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            first = await anext(self._chunks)
        except Exception as error:
            await self._failed(error)(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": first, "more_body": True})
        try:
            async for chunk in self._chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await asyncio.sleep(0)  # else no other task notices that the client has gone
        except Exception as error:
            logger.warning(
                "an answer with rows is cut off: %s", explain(error), extra={"action": "session.rows_cut_off"}
            )
            http_protocol.reset(scope)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    """Return once the client has disconnected. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        continue
