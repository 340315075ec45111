"""The frame of HTTP: an application of the parts that it is given, served until it is asked to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableSet, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import cast

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.routing import iter_route_contexts
from uvicorn.config import STARTUP_FAILURE

from pipeline.api import docs, events, http_protocol, problems, quiet_logs, websocket_protocol
from pipeline.api.http_protocol import LimitedHttp
from pipeline.api.long_poll import ClientGone
from pipeline.api.request_guard import RequestGuard
from pipeline.api.tls_entrance import TlsEntrance
from pipeline.api.turns import Turns
from pipeline.api.wire import Served, Service, Surroundings
from pipeline.config import certificates
from pipeline.log.wakeups import Wakeups
from pipeline.postgres.silence import Silence
from pipeline.process import supervised
from pipeline.process.signals import Stop


@dataclass(frozen=True)
class Parts:
    """What an application is made of, beside what all endpoints share.

    `services`: the wires that are served. `close` ends what the endpoints hold, when the application ends.
    """

    surroundings: Surroundings
    routers: Sequence[APIRouter]
    wires: Served
    services: Sequence[Service]
    close: Callable[[], Awaitable[None]]


def create(parts: Parts) -> FastAPI:
    """The application of these parts."""
    app = FastAPI(
        title="WAL Pipeline Server",
        version="1",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        redirect_slashes=False,
    )
    surroundings = parts.surroundings
    config = app.state.config = surroundings.config
    app.state.events_tables, app.state.page_turns = config.events_tables, Turns(events.PAGES_AT_ONCE)
    app.state.database, app.state.wakeups = surroundings.database, surroundings.wakeups
    app.state.wires, app.state.source_silence = parts.wires, Silence(config.source, "source")
    app.state.close = parts.close
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
    app.add_exception_handler(ClientGone, _client_gone)
    docs.install(app)
    for router in (*parts.routers, *(service.routes for service in parts.services)):
        app.include_router(router)
    _make_models(app)
    return app


def _make_models(app: FastAPI) -> None:
    """Two first requests at once would make them in threads that share the filters of warnings."""
    for _ in iter_route_contexts(app.routes):
        continue


def run(parts: Parts, stop: Stop) -> None:
    """Serve until asked to stop. Raises ConfigError for a certificate that cannot be used."""
    config = parts.surroundings.config
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
    http = _Server(settings, parts.surroundings.wakeups, parts.services)
    stop.then(http.leave)
    said, quiet = logging.getLogger("uvicorn.error"), quiet_logs.QuietRequests()
    said.addFilter(quiet)
    http.run()
    said.removeFilter(quiet)


class _Server(uvicorn.Server):
    """uvicorn without its signal handling: `Stop` ends it, and it then ends long polls, and what wires do."""

    def __init__(self, settings: uvicorn.Config, wakeups: Wakeups, services: Sequence[Service]) -> None:
        super().__init__(settings)
        self._wakeups = wakeups
        self._services = services

    def leave(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, but TLS begins behind the listener, so that handshakes have places and a time limit."""
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
    """Run the pool and the LISTEN connection, which connect as soon as the pipeline database answers."""
    asyncio.get_running_loop().set_exception_handler(quiet_logs.QuietSockets())
    await app.state.database.open()
    listening = supervised.start_task("wakeups", app.state.wakeups.run)
    try:
        yield
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
        await app.state.close()
        await app.state.database.close()


async def _client_gone(_request: Request, _error: Exception) -> Response:
    """The answer to a client that has disconnected; it does not see it."""
    return Response(status_code=499)
