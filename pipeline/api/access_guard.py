"""Checks the host, token, origin and body size of every request, before anything else handles the request.

If the path belongs to a wire, a refusal has the form of that wire's errors.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.api import access, access_sessions, http_protocol
from pipeline.api.access_sessions import Rights
from pipeline.api.problems import answer
from pipeline.api.wire import ErrorAnswer, ServedWires, WireMatch
from pipeline.config.settings import Config

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that need no token, for load balancers."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PAGE = ("/", "/console")
SESSION_PATH = "/v1/console/session"
"""The path that gives a session for a token, which is in the body."""
_DOCS = ("/docs", "/openapi.json")
_FOREIGN_HOST = (
    "without PIPELINE_API_TOKEN this server accepts only host names of this machine; use 127.0.0.1, "
    "set the token, or add the origin to PIPELINE_HTTP_ORIGINS"
)
_FOREIGN_HOST_OF_OPEN = (
    "without a token this path accepts only IP addresses and host names of this machine; use one, "
    "send the token, or add the origin to PIPELINE_HTTP_ORIGINS"
)
_FOREIGN_PAGE = "a web page of another origin may not send this request; add its origin to PIPELINE_HTTP_ORIGINS"
_TOKEN_NEEDED = "this endpoint needs the header Authorization: Bearer with PIPELINE_API_TOKEN"  # noqa: S105  a sentence
_READ_ONLY = "PIPELINE_READ_TOKEN may only read; use PIPELINE_API_TOKEN to change something, or for this path"
_SOME_BEARER_NEEDED = "this endpoint needs the header Authorization: Bearer with any value"
_SUBPROTOCOLS = f", or the subprotocols {access.SUBPROTOCOL} and bearer.<token in base64url>"

MAX_BODY = 1_000_000
"""The most bytes of a request's body."""
BODY_SECONDS = 10.0
"""Seconds in which a body must arrive if the request lacks the token."""
BODY_SECONDS_WITH_TOKEN = 60.0
"""Seconds in which a body must arrive if the request has the token, or if no token is set."""
_CLOSE = {"Connection": "close"}
_BUSY = {"Retry-After": "5", **_CLOSE}
TOO_LARGE = ErrorAnswer(413, f"the body is larger than {MAX_BODY:,} bytes; send less at a time", _CLOSE)
_DISPLACED = ErrorAnswer(503, "too many requests are incomplete, and this one waits longest; send it again", _BUSY)
_FULL = ErrorAnswer(503, "the server cannot answer more requests at the same time; try again later", _BUSY)


class RequestGuard:
    """Wraps the whole application, and refuses every request over HTTP or WebSocket that is not allowed."""

    def __init__(self, app: ASGIApp, config: Config, wires: ServedWires) -> None:
        self._app = app
        self._config = config
        self._wires = wires

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        match = self._wires.match(scope["path"])
        rights = self._rights(scope, match)
        has_token = rights is not None
        failure = self._refusal(scope, match, rights)
        if match is None and scope["type"] == "http" and scope["path"].startswith("/v1/"):
            send = _with_header(send, (b"cache-control", b"no-store"))
        if scope["type"] == "http":
            connection = http_protocol.connection_of(scope)
            if scope["path"] in OPEN_PATHS:
                connection.refuse()
                receive, send = _with_body(b"", receive), _closing(send) if _has_body(scope) else send
            elif failure is not None:
                connection.refuse()
                send = _closing(send) if http_protocol.is_chunked(scope["headers"]) else send
            else:
                connection.admit(has_token=has_token)
                body = await read_body(scope, receive, has_token=has_token)
                if body is None:
                    return
                if isinstance(body, ErrorAnswer):
                    failure = body
                else:
                    receive = _with_body(body, receive)
        await (self._app if failure is None else answer(match, failure))(scope, receive, send)

    def _rights(self, scope: Scope, match: WireMatch | None) -> Rights | None:
        """Return the rights of the request's token, or of its session, which only REST paths accept."""
        headers, path = Headers(scope=scope), scope["path"]
        rights = access_sessions.rights_of(access.given_token(headers, basic=_is_docs(path)), self._config)
        if rights == "all" or match is not None or scope["type"] != "http" or not path.startswith("/v1/"):
            return rights
        return access_sessions.session_rights(headers, self._config) or rights

    def _refusal(self, scope: Scope, match: WireMatch | None, rights: Rights | None) -> ErrorAnswer | None:
        headers = Headers(scope=scope)
        path, handshake = scope["path"], scope["type"] == "websocket"
        if path in OPEN_PATHS:
            return None
        is_open, has_token = match is not None and match.is_open, rights is not None
        if not access.host_allowed(headers, self._config, is_open=is_open and not has_token):
            sentence = _FOREIGN_HOST if self._config.api_token is None else _FOREIGN_HOST_OF_OPEN
            return ErrorAnswer(403, sentence, handshake=handshake)
        if not self._may_change(scope, headers, match):
            return ErrorAnswer(403, _FOREIGN_PAGE, handshake=handshake)
        if rights == "reads" and not (is_open or _is_page(scope) or _is_read(scope, match)):
            return ErrorAnswer(403, _READ_ONLY, handshake=handshake)
        if not (has_token or is_open or _is_page(scope)):
            wanted = 'Basic realm="PIPELINE_API_TOKEN as the password"' if _is_docs(path) else "Bearer"
            also = _SUBPROTOCOLS if handshake else ""
            return ErrorAnswer(401, _TOKEN_NEEDED + also, {"WWW-Authenticate": wanted}, handshake)
        if match is not None and match.wire.wants_bearer and not access.has_bearer(headers):
            return ErrorAnswer(401, _SOME_BEARER_NEEDED, {"WWW-Authenticate": "Bearer"}, handshake)
        return replace(TOO_LARGE, handshake=handshake) if _length(headers) > MAX_BODY else None

    def _may_change(self, scope: Scope, headers: Headers, match: WireMatch | None) -> bool:
        """True if the request changes nothing, or comes from an allowed origin."""
        if scope["type"] == "websocket" or scope["method"] not in _SAFE:
            return access.origin_allowed(headers, self._config)
        return match is None or not match.path.get_changes or access.fetch_allowed(headers, self._config)


def _is_page(scope: Scope) -> bool:
    """True for the console's page and files, which are the same for all, and for its login."""
    if scope["type"] != "http":
        return False
    path: str = scope["path"]
    is_file = path in _PAGE or path.startswith("/console/")
    return path == SESSION_PATH or (is_file and scope["method"] in _SAFE)


def _is_read(scope: Scope, match: WireMatch | None) -> bool:
    """True if PIPELINE_READ_TOKEN is enough: a GET of the REST API or of the metrics, but of no wire."""
    if match is not None or scope["type"] != "http" or scope["method"] not in _SAFE:
        return False
    path: str = scope["path"]
    return path == "/metrics" or path.startswith("/v1/")


def _is_docs(path: str) -> bool:
    return path in _DOCS or path.startswith("/docs/")


def _length(headers: Headers) -> int:
    given = headers.get("content-length", "0")
    return int(given) if given.isascii() and given.isdigit() else 0


def _has_body(scope: Scope) -> bool:
    return http_protocol.is_chunked(scope["headers"]) or _length(Headers(scope=scope)) > 0


def _with_body(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI receive function that returns this body, then later messages such as the disconnect."""
    is_received = False

    async def again() -> Message:
        nonlocal is_received
        if is_received:
            return await receive()
        is_received = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _closing(send: Send) -> Send:
    """Return an ASGI send function that closes the connection after the answer; the rest of the body stays unread."""
    return _with_header(send, (b"connection", b"close"))


def _with_header(send: Send, header: tuple[bytes, bytes]) -> Send:
    """Return an ASGI send function that adds this header to the answer."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), header]}
        await send(message)

    return sending


async def read_body(scope: Scope, receive: Receive, *, has_token: bool) -> bytes | ErrorAnswer | None:
    """Return the body, or the error answer if it cannot be read, or None if the client has gone."""
    connection = http_protocol.connection_of(scope)
    seconds = BODY_SECONDS_WITH_TOKEN if has_token else BODY_SECONDS
    found: bytes | ErrorAnswer | None
    try:
        async with asyncio.timeout(seconds):
            found = await _read_within(connection, receive)
    except TimeoutError:
        found = ErrorAnswer(408, f"the body did not arrive within {seconds:g} s; send all of it at once", _CLOSE)
    if isinstance(found, bytes) and not connection.has_room():
        found = _FULL
    if isinstance(found, ErrorAnswer):
        connection.refuse()
    return found


async def _read_within(connection: http_protocol.RequestConnection, receive: Receive) -> bytes | ErrorAnswer | None:
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
