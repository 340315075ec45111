"""Health, readiness and metrics over HTTP, for load balancers, Kubernetes and Prometheus."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import get_args

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from pipeline.api import problems
from pipeline.api.models import Ready
from pipeline.api.shared_reads import SharedBody, SharedReads
from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError
from pipeline.operate import metrics, readiness
from pipeline.operate.status_reader import SharedStatus
from pipeline.postgres.kept_connection import CheckConnections
from pipeline.process.shared_check import SharedCheck

READY_SECONDS = 1.0
"""Seconds for which all requests get the same answer of `/readyz`, because each check opens sessions."""
SCRAPE_SECONDS = 2.3
"""Seconds that a scrape waits for the databases; then it gets what the scrape before has read."""


def router(config: Config, server: str, reads: SharedReads, shared: SharedStatus) -> APIRouter:
    """Routes of health, readiness and metrics. `server`: this server's name, unique in a pipeline database."""
    checks, routes = _shared_checks(config, server), APIRouter(tags=["health"])

    @routes.get("/healthz", response_class=PlainTextResponse, summary="Alive")
    async def healthz() -> str:
        """Answers as long as this process lives, even if its threads wait. Needs no token."""
        return "ok\n"

    @routes.get(
        "/readyz",
        summary="Migrated and replicating",
        response_model=Ready,
        responses={
            422: problems.documented(422)[422],
            503: {"model": Ready, "description": "Not ready, and why."},
        },
    )
    async def readyz(role: readiness.Role | None = None) -> JSONResponse:
        """200 if this server writes the log; else 503 with the reason and the server that does. Needs no token.

        With `role`, only this role is checked, on whichever server runs it; `api` is ready even on a server that stands
        by. The answer may be a second old.
        """
        found = await checks[role].result()
        return JSONResponse({"ready": not found.reasons, **vars(found)}, status_code=503 if found.reasons else 200)

    scraped = reads.body(partial(_render_metrics, server, shared))

    @routes.get(
        "/metrics",
        response_class=PlainTextResponse,
        summary="Prometheus metrics",
        responses=problems.documented(),
    )
    async def all_metrics() -> Response:
        """The metrics, which may be 2 s old, within 2.5 s; few of them while the pipeline database does not answer."""
        return Response(await _scrape(scraped), media_type=CONTENT_TYPE_LATEST)

    return routes


async def _scrape(shared: SharedBody) -> bytes:
    try:
        return await shared.read(SCRAPE_SECONDS)
    except DatabaseUnavailableError:
        return metrics.render_unavailable()


def _render_metrics(server: str, shared: SharedStatus, opened: CheckConnections) -> bytes:
    now = shared.read(opened)
    reasons = [*readiness.elsewhere(now.roles, server), *now.reasons]
    return metrics.render(replace(now, reasons=reasons), leads=readiness.leads(now.roles, server))


def _shared_checks(config: Config, server: str) -> dict[readiness.Role | None, SharedCheck[readiness.ReadinessReport]]:
    """Return a shared check of this server (None) and of each role."""
    roles: tuple[readiness.Role | None, ...] = (None, *get_args(readiness.Role))
    return {
        role: SharedCheck(partial(readiness.check_readiness, config, server, role), READY_SECONDS) for role in roles
    }
