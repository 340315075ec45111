"""Followers over HTTP, to look at: they are added and changed by the command `pipeline followers`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request

from pipeline.api.database import in_thread
from pipeline.api.parameters import refuse_unknown
from pipeline.api.patterns import NAME
from pipeline.api.problems import documented
from pipeline.config.settings import Config
from pipeline.errors import Unavailable
from pipeline.followers.operating import status
from pipeline.followers.operating.follower_models import Follower, Followers
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.terminal.json_values import as_json

router = APIRouter(
    prefix="/v1/followers", tags=["followers"], responses=documented(422), dependencies=[Depends(refuse_unknown)]
)

SECONDS = 10.0
"""How long the pipeline database has for a request."""
_AT_ONCE = threading.BoundedSemaphore(4)
"""Requests that have a connection of their own."""
Name = Annotated[str, Path(pattern=NAME, description="the follower's name", examples=["reports"])]


@router.get("", response_model=Followers, summary="List followers")
async def everyone(request: Request) -> Any:
    """All followers ordered by name, with their states and how far the log is beyond each."""
    return await _asked(request, lambda pipeline: {"data": as_json(status.listed(pipeline))})


@router.get("/{name}", response_model=Follower, summary="Show a follower", responses=documented(404))
async def one(request: Request, name: Name) -> Any:
    """Its state with the reason and the remedy, its position, its tables and settings."""
    return await _asked(request, lambda pipeline: as_json(status.show(pipeline, name)))


async def _asked(request: Request, ask: Callable[[Connection], Any]) -> Any:
    def work() -> Any:
        with _connected(request) as pipeline:
            return ask(pipeline)

    return await in_thread(request, work)


@contextmanager
def _connected(request: Request) -> Iterator[Connection]:
    """A connection to the pipeline database for one request."""
    config: Config = request.app.state.config
    if not _AT_ONCE.acquire(timeout=SECONDS):
        raise Unavailable("too many requests about followers at once; try again later")
    try:
        with connections.answering(config.database, "pipeline database", SECONDS, name="pipeline api") as pipeline:
            yield pipeline
    finally:
        _AT_ONCE.release()
