"""Reads the body of a request, within limits of its size and time."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope

from pipeline.api import http_protocol
from pipeline.api.wire import Failure

MAX_BODY = 1_000_000
"""The most bytes of a request's body."""
BODY_SECONDS = 10.0
"""How long a body may take without the token."""
BODY_SECONDS_WITH_TOKEN = 60.0
"""How long a body may take with the token, or if no token is set."""
_CLOSE = {"Connection": "close"}
_BUSY = {"Retry-After": "5", **_CLOSE}
TOO_LARGE = Failure(413, f"the body is larger than {MAX_BODY:,} bytes; send less at a time", _CLOSE)
_DISPLACED = Failure(503, "too many requests are incomplete, and this one is the oldest; send it again", _BUSY)
_FULL = Failure(503, "the server answers as many requests as it can; try again later", _BUSY)


async def read(scope: Scope, receive: Receive, *, has_token: bool) -> bytes | Failure | None:
    """Return the body, or why it is not read, or None if the client has gone."""
    connection = http_protocol.of(scope)
    seconds = BODY_SECONDS_WITH_TOKEN if has_token else BODY_SECONDS
    found: bytes | Failure | None
    try:
        async with asyncio.timeout(seconds):
            found = await _read(connection, receive)
    except TimeoutError:
        found = Failure(408, f"the body did not come within {seconds:g} s; send all of it at once", _CLOSE)
    if isinstance(found, bytes) and not connection.has_room():
        found = _FULL
    if isinstance(found, Failure):
        connection.refuse()
    return found


async def _read(connection: http_protocol.RequestConnection, receive: Receive) -> bytes | Failure | None:
    body = bytearray()
    connection.read_body()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if connection.is_displaced:
            return _DISPLACED
        if len(body) > MAX_BODY:
            return TOO_LARGE
        if not message.get("more_body", False):
            return bytes(body)
