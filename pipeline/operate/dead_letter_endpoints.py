"""The dead letters of the log over HTTP: changes that could not be written, kept with their cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from pipeline.api.database import in_session
from pipeline.api.logged_actions import LOGGED
from pipeline.api.models import DeadLetterIds, Settled
from pipeline.api.parameters import refuse_unknown
from pipeline.api.problems import changed_letters, documented
from pipeline.api.shared_reads import TheReads
from pipeline.log import dead_letters
from pipeline.postgres.connections import Connection

router = APIRouter(
    prefix="/v1/dead-letters", tags=["dead letters"], responses=documented(422), dependencies=[Depends(refuse_unknown)]
)
_State = Literal["parked", "retrying", "retried", "discarded"]


class LogDeadLetter(BaseModel):
    """A change that could not be written to its events table, without its values."""

    id: int
    state: _State
    source_epoch: int
    commit_lsn: str = Field(description="as Postgres prints LSNs")
    commit_lsn_bytes: int = Field(description="`commit_lsn` as a number")
    commit_idx: int
    table: str
    action: str
    record_pk: str
    events_table: str
    seq: int = Field(description="the event that stands in its place")
    retried_seq: int | None = Field(description="the event with its values, after a retry")
    cause: str = Field(description="why it could not be written")
    sqlstate: str
    attempts: int
    parked_at: datetime
    updated_at: datetime


class LogDeadLetters(BaseModel):
    """A list in the order of the log."""

    data: list[LogDeadLetter]


@router.get("", response_model=LogDeadLetters, summary="List dead letters of the log")
async def everyone(
    reads: TheReads,
    state: Annotated[_State | None, Query(description="only those in this state")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List changes that could not be written, in the order of the log. May be 2 s old."""
    return await reads.answer_list(
        f"dead letters {state} {limit}", LogDeadLetters, lambda pipeline: dead_letters.find(pipeline, state, limit)
    )


@router.post(
    "/retry",
    response_model=Settled,
    summary="Retry dead letters of the log",
    responses=documented(409),
    dependencies=LOGGED,
)
async def retry(request: Request, body: DeadLetterIds | None = None) -> Any:
    """Ask the server to write parked changes again, as the newest events. Returns how many it will try."""
    return await _settle(request, dead_letters.request_retry, body or DeadLetterIds())


@router.post(
    "/discard",
    response_model=Settled,
    summary="Discard dead letters of the log",
    responses=documented(409),
    dependencies=LOGGED,
)
async def discard(request: Request, body: DeadLetterIds | None = None) -> Any:
    """Give up parked changes. They stay listed, and the events in their place stay."""
    return await _settle(request, dead_letters.discard, body or DeadLetterIds())


async def _settle(
    request: Request, act: Callable[[Connection, Sequence[int] | None], list[int]], chosen: DeadLetterIds
) -> dict[str, int]:
    def work(pipeline: Connection) -> dict[str, int]:
        ids: Sequence[int] | None = chosen.ids
        with pipeline.transaction():
            if chosen.through is not None:
                ids = [each.id for each in dead_letters.find(pipeline, "parked") if each.id <= chosen.through]
                if len(ids) != chosen.count:
                    raise HTTPException(409, changed_letters(len(ids), chosen.through, chosen.count))
            return {"count": len(act(pipeline, ids))}

    return await in_session(request, work)
