"""Checks every request before anything else handles it: host, token, origin, size of the body.

What it refuses has the form of the wire whose path was asked for.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.api import auth
from pipeline.api.problems import answer
from pipeline.api.wires.wire import At, Failure, Served
from pipeline.config import access
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
_FOREIGN_HOST_OF_OPEN = (
    "without a token this path accepts only host names of its own machine and IP addresses; use one, "
    "send the token, or add the origin to PIPELINE_HTTP_ORIGINS"
)
_FOREIGN_PAGE = "a page of another origin may not do this; add its origin to PIPELINE_HTTP_ORIGINS"
_TOKEN_NEEDED = "this endpoint needs the header Authorization: Bearer with PIPELINE_API_TOKEN"  # noqa: S105  a sentence
_SOME_BEARER_NEEDED = "this endpoint needs the header Authorization: Bearer, here of any value"
_SUBPROTOCOLS = f", or the subprotocols {auth.SUBPROTOCOL} and bearer.<token in base64url>"
_TOO_LARGE = f"the body is larger than {MAX_BODY:,} bytes; send less at a time"


class RequestGuard:
    """Wraps the whole application: no request that is not allowed, HTTP or WebSocket, gets through."""

    def __init__(self, app: ASGIApp, config: Config, wires: Served) -> None:
        self._app = app
        self._config = config
        self._wires = wires

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        at = self._wires.at(scope["path"])
        failure = self._refusal(scope, at)
        if failure is None and scope["type"] == "http":
            if (body := await _read(receive)) is None:
                failure = _too_large(scope)
            else:
                receive = _with_body(body, receive)
        await (self._app if failure is None else answer(at, failure))(scope, receive, send)

    def _refusal(self, scope: Scope, at: At | None) -> Failure | None:
        headers = Headers(scope=scope)
        path, handshake = scope["path"], scope["type"] == "websocket"
        if path in OPEN_PATHS:
            return None
        docs = path in _DOCS or path.startswith("/docs/")
        is_open = at is not None and at.is_open
        has_token = access.is_token_valid(auth.given_token(headers, basic=docs), self._config)
        if not auth.host_allowed(headers, self._config, is_open=is_open and not has_token):
            said = _FOREIGN_HOST if self._config.api_token is None else _FOREIGN_HOST_OF_OPEN
            return Failure(403, said, handshake=handshake)
        if not self._may_change(scope, headers, at):
            return Failure(403, _FOREIGN_PAGE, handshake=handshake)
        if not (has_token or is_open):
            wanted = 'Basic realm="PIPELINE_API_TOKEN as the password"' if docs else "Bearer"
            also = _SUBPROTOCOLS if handshake else ""
            return Failure(401, _TOKEN_NEEDED + also, {"WWW-Authenticate": wanted}, handshake)
        if at is not None and at.wire.wants_bearer and not auth.has_bearer(headers):
            return Failure(401, _SOME_BEARER_NEEDED, {"WWW-Authenticate": "Bearer"}, handshake)
        return _too_large(scope) if _length(headers) > MAX_BODY else None

    def _may_change(self, scope: Scope, headers: Headers, at: At | None) -> bool:
        """Whether no page of a foreign origin would change something by this."""
        if scope["type"] == "websocket" or scope["method"] not in _SAFE:
            return auth.origin_allowed(headers, self._config)
        return at is None or not at.place.get_changes or auth.fetch_allowed(headers, self._config)


def _too_large(scope: Scope) -> Failure:
    return Failure(413, _TOO_LARGE, {"Connection": "close"}, scope["type"] == "websocket")


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
