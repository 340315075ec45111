"""The api role: the REST API, health, readiness and metrics over HTTP."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator, Iterator, MutableSet, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import cast, get_args

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import iter_route_contexts
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from uvicorn.config import STARTUP_FAILURE

from pipeline.api import docs, events, http_protocol, problems, quiet_logs, websocket_protocol
from pipeline.api.http_protocol import LimitedHttp
from pipeline.api.long_poll import ClientGone
from pipeline.api.models import Ready
from pipeline.api.request_guard import RequestGuard
from pipeline.api.tls_entrance import TlsEntrance
from pipeline.api.turns import Turns
from pipeline.api.wire import Service, Surroundings
from pipeline.config import certificates
from pipeline.config.settings import Config
from pipeline.consumers import endpoints
from pipeline.consumers.cursor import websocket
from pipeline.consumers.cursor.leases import Cursors
from pipeline.followers.operating import endpoints as followers
from pipeline.log.wakeups import Wakeups
from pipeline.operate import metrics, readiness, status
from pipeline.postgres.pool import Pool
from pipeline.postgres.silence import Silence
from pipeline.process import supervised
from pipeline.process.shared_look import SharedLook
from pipeline.process.signals import Stop
from pipeline.server import composition
from pipeline.snapshots import endpoints as backfills

READY_SECONDS = 1.0
"""How long an answer of `/readyz` is given to all who ask: each look opens sessions."""


def create(config: Config, server: str) -> FastAPI:
    """The application. `server`: this server's name, unique among those on one pipeline database."""
    app = FastAPI(
        title="WAL Pipeline Server",
        version="1",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        redirect_slashes=False,
    )
    app.state.config = config
    app.state.events_tables = config.events_tables
    app.state.database, app.state.page_turns = Pool(config.database, "pipeline api"), Turns(events.PAGES_AT_ONCE)
    app.state.wakeups = Wakeups(config.database, config.events_table, config.http_port)
    app.state.cursors = Cursors(config.database, app.state.database.transaction)
    app.state.wires, app.state.source_silence = composition.served(config), Silence(config.source, "source")
    app.add_middleware(RequestGuard, config=config, wires=app.state.wires)
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
    _add_health(app, config, server)
    app.include_router(endpoints.router)
    app.include_router(backfills.router)
    app.include_router(followers.router)
    app.include_router(events.router)
    app.include_router(websocket.router(config, app.state.database, app.state.wakeups, app.state.cursors, server))
    surroundings = Surroundings(config, app.state.database, app.state.wakeups, server)
    app.state.services = [wire.serve(surroundings) for wire in app.state.wires.wires]
    for service in app.state.services:
        app.include_router(service.routes)
    _make_models(app)
    return app


def _make_models(app: FastAPI) -> None:
    """Two first requests at once would make them in threads that share the filters of warnings."""
    for _ in iter_route_contexts(app.routes):
        continue


def run(config: Config, server: str, stop: Stop) -> None:
    """Serve until asked to stop. Raises ConfigError for a certificate that cannot be used."""
    tls = certificates.context(config)
    app = create(config, server)
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
    http = _Server(settings, app.state.wakeups, app.state.services)
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
        await app.state.cursors.close()
        await app.state.database.close()


def _add_health(app: FastAPI, config: Config, server: str) -> None:
    looks = _looks(config, server)

    @app.get("/healthz", response_class=PlainTextResponse, summary="Alive", tags=["health"])
    async def healthz() -> str:
        """This process answers, whatever its threads wait for. Needs no token."""
        return "ok\n"

    @app.get(
        "/readyz",
        summary="Migrated and replicating",
        tags=["health"],
        response_model=Ready,
        responses={
            422: problems.documented(422)[422],
            503: {"model": Ready, "description": "Not ready, and why."},
        },
    )
    async def readyz(role: readiness.Role | None = None) -> JSONResponse:
        """200 when this server writes the log; else 503 and why, naming the server that does. Needs no token.

        With `role` that role is judged, whichever server runs it; `api` is ready on a server that stands by too.
        The answer may be a second old.
        """
        found = await looks[role].result()
        return JSONResponse({"ready": not found.reasons, **vars(found)}, status_code=503 if found.reasons else 200)

    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        summary="Prometheus metrics",
        tags=["health"],
        responses=problems.documented(),
    )
    def all_metrics() -> Response:
        """Computed from the databases now; 503 when the pipeline database does not answer."""
        now = status.collect(config, 2.2 * readiness.LOOK_SECONDS)  # the source is asked meanwhile
        reasons = [*readiness.elsewhere(now.roles, server), *now.reasons]
        return Response(metrics.render(replace(now, reasons=reasons)), media_type=CONTENT_TYPE_LATEST)


def _looks(config: Config, server: str) -> dict[readiness.Role | None, SharedLook[readiness.Readiness]]:
    """Judge this server, or each role."""
    roles: tuple[readiness.Role | None, ...] = (None, *get_args(readiness.Role))
    return {role: SharedLook(partial(readiness.look, config, server, role), READY_SECONDS) for role in roles}


async def _client_gone(_request: Request, _error: Exception) -> Response:
    """The answer to a client that has disconnected; it does not see it."""
    return Response(status_code=499)
