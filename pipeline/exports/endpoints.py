"""The lake over HTTP: how exports are, the newest runs and ranges, and a request to export now."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from pipeline.api.database import in_session
from pipeline.api.logged_actions import LOGGED
from pipeline.api.parameters import refuse_unknown
from pipeline.api.problems import documented
from pipeline.api.shared_reads import ANSWER_SECONDS, SharedReads, json_response
from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError
from pipeline.exports import ledger, requests, status
from pipeline.postgres import role_locks
from pipeline.postgres.connections import Connection
from pipeline.postgres.kept_connection import CheckConnections

ASKED_SECONDS = 3.5
"""Seconds to wait for the answer of the schedule role, which looks for requests every second."""
_POLL_SECONDS = 0.2
_NEWEST = 20


class Exports(BaseModel):
    """The state of exports, as `pipeline status --json` prints it, and the newest runs and ranges."""

    status: dict[str, Any] = Field(description="schedule, last run, how far the lake is behind, and problems")
    runs: list[dict[str, Any]] = Field(description="the newest runs first, with the reason of a failure")
    ranges: list[dict[str, Any]] = Field(description="the newest ranges of seqs first, with rows and bytes")


class Asked(BaseModel):
    """A request that was accepted."""

    request: int


def router(config: Config, reads: SharedReads) -> APIRouter:
    """Return the routes."""
    found = APIRouter(
        prefix="/v1/exports", tags=["exports"], responses=documented(422), dependencies=[Depends(refuse_unknown)]
    )

    def read(opened: CheckConnections) -> dict[str, Any]:
        with opened.pipeline(ANSWER_SECONDS) as pipeline:
            return {
                "status": status.read(config, pipeline),
                "runs": ledger.runs(pipeline, _NEWEST),
                "ranges": ledger.exports(pipeline, _NEWEST),
            }

    shared = reads.answer(read)

    @found.get("", response_model=Exports, summary="Show exports")
    async def show() -> Response:
        """The state of exports, the newest runs, and the newest ranges. May be 2 s old."""
        return json_response(await shared.read())

    @found.post(
        "/run",
        status_code=202,
        response_model=Asked,
        summary="Export now",
        responses=documented(409),
        dependencies=LOGGED,
    )
    async def run(request: Request) -> Any:
        """Ask the schedule role to export within 5 s. 409: an export runs or is asked for, or exports are off."""
        return {"request": await in_session(request, _ask)}

    return found


def _ask(pipeline: Connection) -> int:
    """Add a request and wait for its answer. Raises HTTPException, or DatabaseUnavailableError without the role."""
    if role_locks.server_of(pipeline, "schedule") is None:
        raise DatabaseUnavailableError("no server runs the schedule role, which exports; start `pipeline serve`")
    if holder := ledger.running(pipeline):
        raise HTTPException(409, f"an export is running already, in process {holder}")
    if (asked := requests.add(pipeline)) is None:
        raise HTTPException(409, "another client has just asked for an export")
    until = time.monotonic() + ASKED_SECONDS
    while time.monotonic() < until:
        answered, refusal = requests.find_answer(pipeline, asked)
        if refusal is not None:
            raise HTTPException(409, f"no export begins: {refusal}")
        if answered:
            break
        time.sleep(_POLL_SECONDS)
    return asked
