"""Builds the HTTP application from its parts, and serves it until the process must stop.

This module adds /docs, which needs no internet access, TLS, and filters so that clients cannot fill the log.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableSet, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from fastapi.routing import iter_route_contexts
from fastapi.staticfiles import StaticFiles
from uvicorn.config import STARTUP_FAILURE

from pipeline.api import events, http_protocol, problems, websocket_protocol
from pipeline.api.access_guard import RequestGuard
from pipeline.api.connection_places import ConnectionPlaces
from pipeline.api.http_protocol import LimitedHttp
from pipeline.api.long_poll import ClientGoneError
from pipeline.api.problems import Problem
from pipeline.api.shared_reads import SharedReads
from pipeline.api.turns import PageTurns
from pipeline.api.wire import ServedWires, WireResources, WireService
from pipeline.config import certificates
from pipeline.log.wakeups import WakeupListener
from pipeline.postgres.silence import SilenceProbe
from pipeline.process import supervised
from pipeline.process.signals import StopSignal

logger = logging.getLogger(__name__)

_DOCS_ASSETS = "/docs/assets"
_DESCRIPTION = """Every committed change of a Postgres database, in commit order: read the log, or receive changes.

Errors are `application/problem+json` with one sentence in `title`. With PIPELINE_API_TOKEN every request but health
needs `Authorization: Bearer`. `docs/reference/websocket.md` describes the stream over WebSocket, which OpenAPI cannot.
"""
HANDSHAKE_SECONDS = 10.0
"""The most seconds of a TLS handshake, and of the close of a TLS connection."""
_SAY_EVERY = 60.0


@dataclass(frozen=True)
class ApplicationParts:
    """The parts of an HTTP application.

    `services`: the wires that are served. `close`, called when the application ends, releases what the endpoints hold.
    """

    resources: WireResources
    reads: SharedReads
    routers: Sequence[APIRouter]
    wires: ServedWires
    services: Sequence[WireService]
    close: Callable[[], Awaitable[None]]


def create(parts: ApplicationParts) -> FastAPI:
    """Build the HTTP application from these parts."""
    app = FastAPI(
        title="WAL Pipeline Server",
        version="1",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        redirect_slashes=False,
    )
    resources = parts.resources
    config = app.state.config = resources.config
    app.state.events_tables, app.state.page_turns = config.events_tables, PageTurns(events.PAGES_AT_ONCE)
    app.state.database, app.state.wakeups = resources.database, resources.wakeups
    app.state.wires, app.state.source_silence = parts.wires, SilenceProbe(config.source, "source")
    app.state.reads, app.state.close = parts.reads, parts.close
    app.add_middleware(RequestGuard, config=config, wires=parts.wires)
    if config.http_origins:  # around the guard: a browser asks before it sends the token, and reads refusals too
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.http_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["Retry-After"],
        )
    problems.install(app)
    app.add_exception_handler(ClientGoneError, _client_gone)
    _install_docs(app)
    for router in (*parts.routers, *(service.routes for service in parts.services)):
        app.include_router(router)
    _make_models(app)
    return app


def _make_models(app: FastAPI) -> None:
    """Build the Pydantic models of all routes before the first request.

    Otherwise two first requests could build them in two threads at once, and each changes Python's warning filters.
    """
    for _ in iter_route_contexts(app.routes):
        continue


def run(parts: ApplicationParts, stop: StopSignal) -> None:
    """Serve until `stop` is set. Raises ConfigError for a certificate that cannot be used."""
    config = parts.resources.config
    tls = certificates.context(config)
    app = create(parts)
    settings = uvicorn.Config(
        app,
        host=config.http_host,
        port=config.http_port,
        http=http_protocol.limited(),
        h11_max_incomplete_event_size=http_protocol.MAX_HEAD,
        ssl_context_factory=(lambda _config, _default: tls) if tls else None,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_graceful_shutdown=5,
        **websocket_protocol.SETTINGS,
    )
    http = _Server(settings, parts.resources.wakeups, parts.services)
    stop.then(http.leave)
    said, quiet = logging.getLogger("uvicorn.error"), QuietRequests()
    said.addFilter(quiet)
    http.run()
    said.removeFilter(quiet)


class _Server(uvicorn.Server):
    """uvicorn without its signal handling: `StopSignal` ends the server, which first ends long polls and wires."""

    def __init__(self, settings: uvicorn.Config, wakeups: WakeupListener, services: Sequence[WireService]) -> None:
        super().__init__(settings)
        self._wakeups = wakeups
        self._services = services

    def leave(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, but begin TLS after accepting, so that handshakes have places and a time limit."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        host, port, backlog = self.config.host, self.config.port, self.config.backlog
        try:
            listener = await asyncio.get_running_loop().create_server(self._protocol, host, port, backlog=backlog)
        except OSError as error:
            logging.getLogger("uvicorn.error").error(error)
            await self.lifespan.shutdown()
            sys.exit(STARTUP_FAILURE)
        self.servers = [listener]
        self._log_started_message(listener.sockets)
        self.started = True

    def _protocol(self) -> asyncio.Protocol:
        kind = cast(type[LimitedHttp], self.config.http_protocol_class)
        http = kind(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        if self.config.ssl is None:
            return http
        return TlsEntrance(http, self.config.ssl, kind.places, cast(MutableSet[object], self.server_state.connections))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._wakeups.close()
        await asyncio.gather(*(service.close() for service in self._services))
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to our own handlers."""
        yield


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the connection pool and the listener while the application runs. Both connect once the database answers."""
    asyncio.get_running_loop().set_exception_handler(QuietSockets())
    await app.state.database.open()
    listening = supervised.start_task("wakeups", app.state.wakeups.run)
    try:
        yield
    finally:
        while not listening.done():  # psycopg may lose a cancellation that arrives while it connects
            listening.cancel()
            await asyncio.wait([listening], timeout=1)
        await app.state.close()
        await app.state.database.close()


async def _client_gone(_request: Request, _error: Exception) -> Response:
    """Return an answer for a client that has disconnected and cannot receive it."""
    return Response(status_code=499)


def _install_docs(app: FastAPI) -> None:
    """Add /docs with its files, and /openapi.json with the token and the errors, which FastAPI does not know."""
    app.description = _DESCRIPTION
    app.mount(_DOCS_ASSETS, StaticFiles(directory=_docs_files()), name="assets")
    app.add_api_route("/docs", _docs_page, include_in_schema=False, response_class=HTMLResponse)

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described_schema(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _docs_files() -> Path:
    """Return the folder of the assets in the package fastapi_offline, without importing the package."""
    found = find_spec("fastapi_offline")
    assert found is not None and found.submodule_search_locations  # noqa: S101  a dependency
    return Path(found.submodule_search_locations[0]) / "static"


def _docs_page() -> HTMLResponse:
    page = get_swagger_ui_html(
        openapi_url="/openapi.json",
        title="WAL Pipeline Server",
        swagger_js_url=f"{_DOCS_ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{_DOCS_ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{_DOCS_ASSETS}/favicon.png",
    )
    page.headers["Content-Security-Policy"] = "frame-ancestors 'none'"
    return page


def _described_schema(app: FastAPI) -> dict[str, Any]:
    schema = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    parts = schema.setdefault("components", {})
    parts.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
    for name in ("HTTPValidationError", "ValidationError"):
        parts["schemas"].pop(name, None)
    parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer", "description": "PIPELINE_API_TOKEN"}}
    schema["security"] = [{"token": []}, {}]
    return schema


class TlsEntrance(asyncio.Protocol):
    """Does the TLS handshake with a client, then passes the encrypted connection to the HTTP protocol."""

    has_token = False
    held = 0

    def __init__(
        self, http: asyncio.Protocol, context: ssl.SSLContext, places: ConnectionPlaces, connections: MutableSet[object]
    ) -> None:
        """`connections`: the set of the server's connections. This handshake is in the set until `http` takes over."""
        self._http = http
        self._context = context
        self._places = places
        self._connections = connections
        self._early = bytearray()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the handshake."""
        transport.pause_reading()  # `start_tls` resumes
        self._transport = transport
        self._connections.add(self)
        self._places.wait(self, 0, len(self._connections))
        self._task = asyncio.get_running_loop().create_task(self._shake_hands())

    def data_received(self, data: bytes) -> None:
        """Store bytes that arrive with the end of the handshake; the HTTP protocol gets them later."""
        self._early += data

    def yield_place(self) -> None:
        """Close the connection in the middle of its handshake."""
        self._places.leave(self)
        self._connections.discard(self)
        self._transport.abort()

    shutdown = yield_place

    async def _shake_hands(self) -> None:
        encrypted: asyncio.Transport | None = None
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                self._transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=HANDSHAKE_SECONDS,
            )
        except OSError:  # what clients do is not ours to log
            self._transport.abort()
        finally:
            self._places.leave(self)
            self._connections.discard(self)
        if encrypted is not None and not encrypted.is_closing():
            encrypted.set_protocol(self._http)
            self._http.connection_made(encrypted)
            if self._early:
                self._http.data_received(bytes(self._early))


class RarelySaid:
    """Limits a log line to once a minute, and counts the lines that were not logged."""

    def __init__(self) -> None:
        self._said_at = float("-inf")
        self._unsaid = 0

    def suffix(self) -> str | None:
        """Return a text to add to the line, which may be empty; None if the line must not be logged now."""
        if time.monotonic() - self._said_at < _SAY_EVERY:
            self._unsaid += 1
            return None
        more = f", and {self._unsaid} more since the last such line" if self._unsaid else ""
        self._said_at, self._unsaid = time.monotonic(), 0
        return more


class QuietSockets:
    """An asyncio exception handler that logs errors of sockets once a minute, and every other error at once."""

    def __init__(self) -> None:
        self._said = RarelySaid()

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle one error that asyncio reports."""
        error = context.get("exception")
        if not isinstance(error, OSError):
            loop.default_exception_handler(context)
        elif (more := self._said.suffix()) is not None:
            logger.error("%s: %s%s", context.get("message"), error, more, extra={"action": "api.socket_error"})


class QuietRequests(logging.Filter):
    """A filter for uvicorn's logger: pass each warning once a minute, and drop errors that `problems` logs."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, RarelySaid] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """True if the record is logged. uvicorn's warnings have no arguments, so there are few."""
        if record.exc_info:
            return False
        if record.levelno == logging.WARNING:
            more = self._said.setdefault(str(record.msg), RarelySaid()).suffix()
            if more is None:
                return False
            record.msg = f"{str(record.msg).rstrip('.')}{more}"
        return True
