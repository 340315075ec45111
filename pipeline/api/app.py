"""The api role: health, readiness and metrics over HTTP."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import psycopg
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from pipeline import db
from pipeline.api import metrics
from pipeline.catalog import roles
from pipeline.config import Config
from pipeline.errors import PipelineError
from pipeline.loop import Stop
from pipeline.operations import status

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Answered without a token: what a load balancer asks."""


def create(config: Config, server: str) -> FastAPI:
    """The application. `server` is this server's name among those on one pipeline database."""
    app = FastAPI(title="WAL Pipeline Server", docs_url="/docs", redoc_url=None)

    @app.middleware("http")
    async def require_token(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        """Every endpoint but health wants the token, when there is one."""
        if config.api_token is not None and request.url.path not in OPEN_PATHS:
            given = request.headers.get("authorization", "")
            expected = f"Bearer {config.api_token.get_secret_value()}"
            if not secrets.compare_digest(given.encode(), expected.encode()):
                return _problem(401, "this endpoint wants the header Authorization: Bearer with PIPELINE_API_TOKEN")
        return await answer(request)

    @app.get("/healthz", response_class=PlainTextResponse, summary="Alive")
    def healthz() -> str:
        """This process answers."""
        return "ok\n"

    @app.get("/readyz", summary="Migrated and replicating")
    def readyz() -> JSONResponse:
        """200 when the log is being written by this server; else 503 and why not, naming who does it instead."""
        reasons = readiness(config, server)
        return JSONResponse({"ready": not reasons, "reasons": reasons}, status_code=503 if reasons else 200)

    @app.get("/metrics", response_class=PlainTextResponse, summary="Prometheus metrics")
    def all_metrics() -> Response:
        """Computed from the databases now; 503 when the pipeline database does not answer."""
        try:
            text = metrics.render(status.collect(config))
        except PipelineError as error:
            return _problem(503, str(error))
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return app


def readiness(config: Config, server: str) -> list[str]:
    """Why this server is not ready; empty when it is."""
    try:
        with db.connect(config.database, "pipeline database", name="pipeline readiness") as connection:
            held = list(roles.states(connection).values())
    except PipelineError as error:
        return [str(error)]
    except psycopg.errors.UndefinedTable:
        return ["the pipeline database is not migrated"]
    elsewhere = [
        f"standing by: {role.role} is held by {role.server} (pid {role.pid})"
        for role in held
        if role.held and role.server != server and role.role in ("replication", "shuffle")
    ]
    return elsewhere + status.role_reasons(held)


def run(config: Config, server: str, stop: Stop) -> None:
    """Serve until told to stop."""
    settings = uvicorn.Config(
        create(config, server),
        host=config.http_host,
        port=config.http_port,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
    )
    http = _Server(settings)
    stop.then(http.leave)
    http.run()


class _Server(uvicorn.Server):
    """uvicorn with our signals: it is told to leave by `Stop`."""

    def leave(self) -> None:
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours."""
        yield


def _problem(code: int, sentence: str) -> JSONResponse:
    return JSONResponse({"title": sentence, "status": code}, code, media_type="application/problem+json")
