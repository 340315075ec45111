"""Backfills over HTTP, like the command `pipeline backfill`. A condition is column, operator and value, never SQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pipeline.api.database import in_session, in_thread, session
from pipeline.api.logged_actions import LOGGED
from pipeline.api.parameters import refuse_unknown
from pipeline.api.patterns import NO_ZERO_BYTE
from pipeline.api.problems import documented
from pipeline.api.shared_reads import TheReads
from pipeline.config.settings import Config
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.snapshots import start as start_backfill
from pipeline.snapshots import status
from pipeline.snapshots.conditions import condition
from pipeline.snapshots.status import BackfillStatus

router = APIRouter(
    prefix="/v1/backfills", tags=["backfills"], responses=documented(422), dependencies=[Depends(refuse_unknown)]
)

T = TypeVar("T")
SECONDS = 4.0
"""Seconds in which the source must accept a session for a request, and then answer it."""
Number = Annotated[int, Path(alias="id", ge=1, lt=2**63, description="the backfill's id", examples=[7])]
_NUMBERED = documented(404)

_Text = Annotated[str, StringConstraints(pattern=NO_ZERO_BYTE, max_length=1000, strict=True)]
_Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
_Whole = Annotated[int, Field(ge=-(2**63), lt=2**64, strict=True)]
_Value = Annotated[bool, Field(strict=True)] | _Whole | _Number | _Text
Operator = Literal[
    "=", "<>", "!=", "<", "<=", ">", ">=", "like", "ilike", "in", "not in", "is null", "is not null"
]  # fmt: skip


class Term(BaseModel):
    """One comparison of a column. The value takes the column's type; dates and the like are texts."""

    model_config = ConfigDict(extra="forbid")

    column: Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=NO_ZERO_BYTE)]
    operator: Operator
    value: _Value | Annotated[list[_Value], Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="a list for `in` and `not in`; none for `is null` and `is not null`"
    )


class NewBackfill(BaseModel):
    """The table to read, and which of its rows."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"table": "public.orders", "where": [{"column": "id", "operator": ">=", "value": 5}]}]
        },
    )

    table: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_ZERO_BYTE)] = Field(
        description="`schema.table`, of a table that is captured"
    )
    where: list[Term] = Field(
        default_factory=list, max_length=100, description="only rows for which all of these hold; empty: all rows"
    )
    differences: bool = Field(
        default=False, strict=True, description="compare the whole table with the log, and append only what differs"
    )


class Backfill(BaseModel):
    """A backfill, and how far it is. Null: not known, or not yet."""

    id: int
    table: str
    kind: Literal["initial", "asked", "differences"] = Field(
        description="initial: its table joined; asked: a user asked for it; differences: it appends only what differs"
    )
    condition: str | None = Field(description="it reads only rows that fulfil this; null: all rows")
    state: Literal["waiting", "reading", "paused", "complete", "failed", "cancelled"]
    reason: str | None = Field(
        description="its current step, what it waits for, why it failed, or what it could not find out"
    )
    ranges_done: int
    ranges_all: int
    rows_read: int
    rows: int = Field(
        description="events added; for the rest of `rows_read`, the log had the same values or newer ones"
    )
    rows_estimated: int | None = Field(description="estimated rows of the whole table, with or without a condition")
    rows_per_second: float | None = Field(description="average since the backfill began; null unless it is reading")
    seconds_left: float | None = Field(description="estimated from the rate so far")
    events_table: str | None
    first_seq: int | None
    last_seq: int | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Backfills(BaseModel):
    """A list, the newest first."""

    data: list[Backfill]


@router.post(
    "",
    status_code=201,
    response_model=Backfill,
    summary="Begin a backfill",
    responses=documented(409),
    dependencies=LOGGED,
)
async def start(body: NewBackfill, request: Request, response: Response) -> BackfillStatus:
    """Read the table: each row becomes an event with the action `read`, unless the log has a newer one of its key.

    With `differences` only what differs from the log becomes events: inserts, updates and deletes.
    """
    config = _config(request)
    chosen = start_backfill.by_terms(
        [condition.ColumnComparison(each.column, each.operator, each.value) for each in body.where]
    )

    def work() -> BackfillStatus:
        with (
            session(config) as pipeline,
            connections.answering(config.source, "source", SECONDS, name="pipeline api") as source,
        ):
            return start_backfill.start(config, source, pipeline, body.table, chosen, differences=body.differences)

    found = await in_thread(request, work, source_too=True)
    request.state.subject = body.table
    response.headers["Location"] = f"/v1/backfills/{found.id}"
    return found


@router.get("", response_model=Backfills, summary="List backfills")
async def newest(
    request: Request,
    reads: TheReads,
    limit: Annotated[int, Query(ge=1, le=1000, description="the highest number of backfills")] = 100,
) -> Response:
    """List the newest first, with those that the server started for tables that joined. May be 2 s old."""
    config = _config(request)
    return await reads.answer_list(
        f"backfills {limit}", Backfills, lambda pipeline: status.list_backfills(config, pipeline, limit)
    )


@router.get("/{id}", response_model=Backfill, summary="Show a backfill", responses=_NUMBERED)
async def one(request: Request, number: Number) -> BackfillStatus:
    """Show how far the backfill is, how fast, and how long it still takes."""
    return await _asked(request, lambda config, pipeline: status.show(config, pipeline, number))


@router.post(
    "/{id}/pause",
    response_model=Backfill,
    summary="Pause a backfill",
    responses=documented(404, 409),
    dependencies=LOGGED,
)
async def pause(request: Request, number: Number) -> BackfillStatus:
    """Pause the backfill; ranges that are being read are finished."""
    return await _asked(request, lambda config, pipeline: status.pause(config, pipeline, number))


@router.post(
    "/{id}/resume",
    response_model=Backfill,
    summary="Resume a backfill",
    responses=documented(404, 409),
    dependencies=LOGGED,
)
async def resume(request: Request, number: Number) -> BackfillStatus:
    """Resume a paused backfill."""
    return await _asked(request, lambda config, pipeline: status.resume(config, pipeline, number))


@router.post(
    "/{id}/cancel",
    response_model=Backfill,
    summary="Cancel a backfill",
    responses=documented(404, 409),
    dependencies=LOGGED,
)
async def cancel(request: Request, number: Number) -> BackfillStatus:
    """End the backfill; the events that it has added stay."""
    return await _asked(request, lambda config, pipeline: status.cancel(config, pipeline, number))


def _config(request: Request) -> Config:
    found: Config = request.app.state.config
    return found


async def _asked(request: Request, ask: Callable[[Config, Connection], T]) -> T:
    config = _config(request)
    return await in_session(request, lambda pipeline: ask(config, pipeline))
