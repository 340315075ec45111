"""An answer of any size in bounded memory: whole, an error, or visibly torn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from fastapi import Response
from starlette.types import Receive, Scope, Send

from pipeline.api import http_protocol
from pipeline.api.problems import explain
from pipeline.wires.pgdeltastream.answers import Json

logger = logging.getLogger(__name__)


class RowsResponse(Response):
    """JSON from chunks. An error before the first becomes the answer of `failed`; a later one cuts the connection.

    A client that goes away ends the chunks.
    """

    def __init__(self, chunks: AsyncGenerator[bytes, None], failed: Callable[[Exception], Response]) -> None:
        super().__init__(media_type=Json.media_type)
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
                await asyncio.sleep(0)  # to a client that has gone it sends nothing, at once: that must be noticed
        except Exception as error:
            logger.warning(
                "an answer with rows is cut off: %s", explain(error), extra={"action": "session.rows_cut_off"}
            )
            http_protocol.reset(scope)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    """Returns once the client has disconnected. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        continue
