"""Followers over HTTP: shown, paused, resumed, and copied again; only `pipeline followers` adds and removes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pipeline.api.database import in_session
from pipeline.api.logged_actions import LOGGED
from pipeline.api.parameters import refuse_unknown
from pipeline.api.patterns import NAME, NO_ZERO_BYTE
from pipeline.api.problems import documented
from pipeline.api.shared_reads import TheReads
from pipeline.followers.operating import resync, status
from pipeline.postgres.connections import Connection
from pipeline.terminal.json_values import as_json

router = APIRouter(
    prefix="/v1/followers", tags=["followers"], responses=documented(422), dependencies=[Depends(refuse_unknown)]
)

LOCK_SECONDS = 3.0
"""The longest wait of a request for the applier's transaction; connecting to the follower may take as long."""
RESYNC_SECONDS = 9.0
"""Seconds for all that a request for new copies does."""
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


class ResyncTables(BaseModel):
    """The tables to copy again."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"tables": ["public.orders"]}]})

    tables: list[Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_ZERO_BYTE)]] = Field(
        min_length=1, max_length=100, description="`schema.table`, or patterns in which `*` matches anything"
    )


class Resync(BaseModel):
    """The tables that are copied again."""

    follower: str
    seq: int = Field(description="the seq from which on the tables are copied")
    tables: list[str]
    copying: list[str] = Field(description="tables whose copy was requested before")


class Followers(BaseModel):
    """A list of followers, ordered by name."""

    data: list[Follower]


@router.get("", response_model=Followers, summary="List followers")
async def everyone(reads: TheReads) -> Response:
    """Return all followers, ordered by name, with their states and lags. May be 2 s old."""
    return await reads.answer_list("followers", Followers, status.list_followers)


@router.get("/{name}", response_model=Follower, summary="Show a follower", responses=documented(404))
async def one(request: Request, name: Name) -> Any:
    """Return one follower: its state with the reason and the remedy, its position, its tables and settings."""
    return await in_session(request, lambda pipeline: as_json(status.show(pipeline, name)))


@router.post(
    "/{name}/pause",
    response_model=Follower,
    summary="Pause a follower",
    responses=documented(404),
    dependencies=LOGGED,
)
async def pause(request: Request, name: Name) -> Any:
    """Pause a follower: nothing is applied to it, and the log is kept for it."""
    return await in_session(request, lambda pipeline: as_json(status.pause(pipeline, name)))


@router.post(
    "/{name}/resume",
    response_model=Follower,
    summary="Resume a follower",
    responses=documented(404),
    dependencies=LOGGED,
)
async def resume(request: Request, name: Name) -> Any:
    """Resume a paused follower at its position."""
    return await in_session(request, lambda pipeline: as_json(status.resume(pipeline, name)))


@router.post(
    "/{name}/resync",
    status_code=202,
    response_model=Resync,
    summary="Copy tables again",
    responses=documented(404, 409),
    dependencies=LOGGED,
)
async def copy_again(request: Request, name: Name, body: ResyncTables) -> Any:
    """Request new copies of tables. Until they are made, the follower applies nothing to these tables."""

    def work(pipeline: Connection) -> Any:
        return as_json(resync.resync(pipeline, name, body.tables, lock_seconds=LOCK_SECONDS))

    return await in_session(request, work, RESYNC_SECONDS)
