"""Shows followers over HTTP; only the command `pipeline followers` adds and changes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, Field

from pipeline.api.database import in_thread
from pipeline.api.parameters import refuse_unknown
from pipeline.api.patterns import NAME
from pipeline.api.problems import documented
from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError
from pipeline.followers.operating import status
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.terminal.json_values import as_json

router = APIRouter(
    prefix="/v1/followers", tags=["followers"], responses=documented(422), dependencies=[Depends(refuse_unknown)]
)

SECONDS = 10.0
"""Seconds in which the pipeline database must answer a request."""
_AT_ONCE = threading.BoundedSemaphore(4)
"""Limits the requests that have a connection at the same time."""
Name = Annotated[str, Path(pattern=NAME, description="the follower's name", examples=["reports"])]


class FollowerTable(BaseModel):
    """A table of a follower."""

    table: str
    state: Literal["waiting", "copying", "following", "stopped", "different"]
    reason: str | None = Field(description="why the table is in this state")
    remedy: str | None = Field(description="what a user can do about it")


class Follower(BaseModel):
    """A database that is kept equal to the source, and how far behind it is. Null: not known, or not yet."""

    name: str
    state: Literal["copying", "following", "waiting", "paused", "stopped"]
    reason: str | None = Field(description="why the follower is in this state")
    remedy: str | None = Field(description="what a user can do about it")
    seq: int = Field(description="all events up to this seq are applied")
    commit_lsn: str | None = Field(description="LSN of the last applied transaction, as Postgres prints LSNs")
    commit_lsn_bytes: int | None = Field(description="`commit_lsn` as a number")
    committed_at: datetime | None = Field(description="when the last applied transaction was committed at the source")
    lag_seqs: int = Field(description="the number of events that are not applied yet")
    lag_seconds: float = Field(description="the age of the oldest event that is not applied yet; 0: there is none")
    tables: list[FollowerTable]
    database: str = Field(description="address of the database, without any secret")
    patterns: list[str] = Field(description="patterns of the followed tables; empty: all captured tables")
    copy_: Literal["source", "log", "none"] = Field(alias="copy", description="origin of the follower's first rows")
    schema_: Literal["create", "exists"] = Field(
        alias="schema", description="create: the server creates missing tables; exists: all tables must exist"
    )
    ddl: Literal["follow", "stop"]
    on_rewrite: Literal["copy", "stop"]
    truncate: bool = Field(description="true: tables with rows are emptied before they are copied")
    made_at: datetime
    made_seq: int = Field(description="the newest seq when the follower was added")
    reported_at: datetime | None = Field(description="when the server last stored the follower's position")
    lacks: str | None = Field(description="why the follower does not follow all of its tables; null: it does")


class Followers(BaseModel):
    """A list of followers, ordered by name."""

    data: list[Follower]


@router.get("", response_model=Followers, summary="List followers")
async def everyone(request: Request) -> Any:
    """Return all followers, ordered by name, with their states and lags."""
    return await _answer(request, lambda pipeline: {"data": as_json(status.list_followers(pipeline))})


@router.get("/{name}", response_model=Follower, summary="Show a follower", responses=documented(404))
async def one(request: Request, name: Name) -> Any:
    """Return one follower: its state with the reason and the remedy, its position, its tables and settings."""
    return await _answer(request, lambda pipeline: as_json(status.show(pipeline, name)))


async def _answer(request: Request, ask: Callable[[Connection], Any]) -> Any:
    def work() -> Any:
        with _connected(request) as pipeline:
            return ask(pipeline)

    return await in_thread(request, work)


@contextmanager
def _connected(request: Request) -> Iterator[Connection]:
    """Yield a connection to the pipeline database for one request."""
    config: Config = request.app.state.config
    if not _AT_ONCE.acquire(timeout=SECONDS):
        raise DatabaseUnavailableError("too many requests about followers at once; try again later")
    try:
        with connections.answering(config.database, "pipeline database", SECONDS, name="pipeline api") as pipeline:
            yield pipeline
    finally:
        _AT_ONCE.release()
