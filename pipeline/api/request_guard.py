"""Checks every request before anything else handles it: host, token, origin, size of the body."""

from __future__ import annotations

from fastapi import Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.api import auth
from pipeline.api.problems import problem
from pipeline.config.settings import Config

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Answered without a token, for load balancers."""
MAX_BODY = 1_000_000
"""The most bytes of a request's body."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_DOCS = ("/docs", "/openapi.json")
_FOREIGN_HOST = (
    "without PIPELINE_API_TOKEN this server accepts only host names of its own machine; use 127.0.0.1, "
    "set the token, or add the origin to PIPELINE_HTTP_ORIGINS"
)
_TOKEN_NEEDED = "this endpoint needs the header Authorization: Bearer with PIPELINE_API_TOKEN"  # noqa: S105  a sentence
_SUBPROTOCOLS = f", or the subprotocols {auth.SUBPROTOCOL} and bearer.<token in base64url>"
_TOO_LARGE = f"the body is larger than {MAX_BODY:,} bytes; send less at a time"


class RequestGuard:
    """Wraps the whole application: no request that is not allowed, HTTP or WebSocket, gets through."""

    def __init__(self, app: ASGIApp, config: Config) -> None:
        self._app = app
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if (refusal := self._refusal(scope)) is not None:
            await refusal(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:
            await problem(413, _TOO_LARGE, {"Connection": "close"})(scope, receive, send)
            return
        await self._app(scope, _with_body(body, receive), send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        path = scope["path"]
        changes = scope["type"] == "websocket" or scope["method"] not in _SAFE
        docs = path in _DOCS or path.startswith("/docs/")
        if path in OPEN_PATHS:
            return None
        if not auth.host_allowed(headers, self._config):
            return problem(403, _FOREIGN_HOST)
        if changes and not auth.origin_allowed(headers, self._config):
            return problem(403, "a page of another origin may not do this; add its origin to PIPELINE_HTTP_ORIGINS")
        if not auth.is_token_valid(auth.given_token(headers, basic=docs), self._config):
            wanted = 'Basic realm="PIPELINE_API_TOKEN as the password"' if docs else "Bearer"
            also = _SUBPROTOCOLS if scope["type"] == "websocket" else ""
            return problem(401, _TOKEN_NEEDED + also, {"WWW-Authenticate": wanted})
        if _length(headers) > MAX_BODY:
            return problem(413, _TOO_LARGE, {"Connection": "close"})
        return None


def _length(headers: Headers) -> int:
    given = headers.get("content-length", "0")
    return int(given) if given.isascii() and given.isdigit() else 0


async def _read(receive: Receive) -> list[Message] | None:
    """The messages that carry the body, or None when it is too large."""
    messages: list[Message] = []
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            return None
        if message["type"] != "http.request" or not message.get("more_body", False):
            return messages


def _with_body(messages: list[Message], receive: Receive) -> Receive:
    """Receives the messages that were read already, then further ones, such as the client's disconnect."""
    left = iter(messages)

    async def again() -> Message:
        message = next(left, None)
        return await receive() if message is None else message

    return again
