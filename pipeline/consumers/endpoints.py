"""Consumers over HTTP: a thin layer over the SQL functions, one transaction for each request."""

from __future__ import annotations

from typing import Annotated, Any, LiteralString

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from psycopg.rows import scalar_row
from starlette.exceptions import HTTPException

from pipeline.api.database import TheDatabase, TheWakeups
from pipeline.api.long_poll import WaitingClient, until_found
from pipeline.api.models import (
    MAX_SEQ,
    Ack,
    Advance,
    Consumer,
    Consumers,
    DeadLetters,
    DeadLetterSeqs,
    Extend,
    Items,
    Nack,
    NewConsumer,
    Position,
    Receive,
    Reset,
    Settled,
)
from pipeline.api.parameters import refuse_unknown
from pipeline.api.patterns import NAME
from pipeline.api.problems import documented
from pipeline.postgres.pool import Pool, rows
from pipeline.postgres.queries import statement

router = APIRouter(
    prefix="/v1/consumers", tags=["consumers"], responses=documented(422), dependencies=[Depends(refuse_unknown)]
)

Name = Annotated[str, Path(pattern=NAME, description="the consumer's name", examples=["mailer"])]
_NAMED = documented(404)
_SETTLING = documented(404, 409)
_RECEIVE_RECORDS = """\
select row_to_json(item)::text as item
from pipeline.receive(%(name)s::text, %(max)s::int, make_interval(secs => %(visibility)s::float8)) as item
"""
"""Deliver items, each as its JSON text."""


@router.post("", status_code=201, response_model=Consumer, summary="Create a consumer", responses=documented(409, 410))
async def create(body: NewConsumer, database: TheDatabase, response: Response) -> dict[str, Any]:
    """It receives events that are written to the log from now on, or from `start`."""
    found = await _change(database, "create_consumer", body.name, **body.model_dump(exclude={"name"}))
    response.headers["Location"] = f"/v1/consumers/{body.name}"
    return found


@router.get("", response_model=Consumers, summary="List consumers")
async def everyone(database: TheDatabase) -> dict[str, Any]:
    """All consumers ordered by name, with their status."""
    return {"data": await database.rows(statement("consumers", "consumer_status"), {"name": None})}


@router.get("/{name}", response_model=Consumer, summary="Show a consumer", responses=_NAMED)
async def one(name: Name, database: TheDatabase) -> dict[str, Any]:
    """Its settings and status."""
    found = await database.rows(statement("consumers", "consumer_status"), {"name": name})
    if not found:
        raise HTTPException(404, f'consumer "{name}" does not exist; GET /v1/consumers lists all')
    return found[0]


@router.delete("/{name}", response_model=Consumer, summary="Delete a consumer", responses=_NAMED)
async def delete(name: Name, database: TheDatabase) -> dict[str, Any]:
    """It is deleted with what it has not acknowledged; the log stays. Returns the consumer as it was."""
    return await _change(database, "drop_consumer", name)


@router.post("/{name}/pause", response_model=Consumer, summary="Pause a consumer", responses=_NAMED)
async def pause(name: Name, database: TheDatabase) -> dict[str, Any]:
    """Nothing more is delivered; changes are still kept for it. Delivered items can still be acknowledged."""
    return await _change(database, "pause_consumer", name)


@router.post("/{name}/resume", response_model=Consumer, summary="Resume a consumer", responses=_NAMED)
async def resume(name: Name, database: TheDatabase) -> dict[str, Any]:
    """The opposite of pause."""
    return await _change(database, "resume_consumer", name)


@router.post("/{name}/reset", response_model=Consumer, summary="Reset a consumer", responses=documented(404, 409, 410))
async def reset(name: Name, database: TheDatabase, body: Reset | None = None) -> dict[str, Any]:
    """It starts again at `start`. What it had not acknowledged is forgotten; late acknowledgements have no effect."""
    return await _change(database, "reset_consumer", name, start=(body or Reset()).start)


@router.post("/{name}/receive", response_model=Items, summary="Receive items", responses=_SETTLING)
async def receive(
    name: Name, request: Request, database: TheDatabase, wakeups: TheWakeups, body: Receive | None = None
) -> Response:
    """The oldest available items of a records consumer. With `wait` the answer comes when there is one.

    Acknowledge each by its `ack_id` within `visibility` seconds, or it is delivered again.
    """
    wanted = body or Receive()
    with wakeups.for_consumer(name) as subscription:

        async def look(client: WaitingClient) -> list[str] | None:
            return await _hand_out(database, client, name, wanted)

        async def due() -> float | None:
            seconds: float | None = (await _one(database, "next_visible", name=name))["seconds"]
            return seconds

        items = await until_found(request, subscription, wanted.wait, look, due)
    return json_list(items or [])


@router.post("/{name}/ack", response_model=Settled, summary="Acknowledge items", responses=_SETTLING)
async def ack(name: Name, body: Ack, database: TheDatabase) -> dict[str, Any]:
    """They are not delivered again, unless their row has changed meanwhile."""
    return await _one(database, "ack_records", name=name, ack_ids=body.ack_ids)


@router.post("/{name}/nack", response_model=Settled, summary="Refuse items", responses=_SETTLING)
async def nack(name: Name, body: Nack, database: TheDatabase) -> dict[str, Any]:
    """They are delivered again after `delay`, or become dead letters after `max_deliveries` deliveries."""
    return await _one(database, "nack_records", name=name, ack_ids=body.ack_ids, delay=body.delay)


@router.post("/{name}/extend", response_model=Settled, summary="Keep items longer", responses=_SETTLING)
async def extend(name: Name, body: Extend, database: TheDatabase) -> dict[str, Any]:
    """They are not delivered again before `visibility` seconds from now."""
    return await _one(database, "extend_records", name=name, ack_ids=body.ack_ids, visibility=body.visibility)


@router.post("/{name}/advance", response_model=Position, summary="Move a cursor", responses=_SETTLING)
async def advance(name: Name, body: Advance, database: TheDatabase) -> dict[str, Any]:
    """Acknowledge everything up to `seq`; this never moves a cursor back. Returns its position."""
    return await _one(database, "move_cursor", name=name, seq=body.seq)


@router.get("/{name}/dead-letters", response_model=DeadLetters, summary="List dead letters", responses=_SETTLING)
async def dead_letters(
    name: Name,
    database: TheDatabase,
    after: Annotated[int, Query(ge=0, le=MAX_SEQ, description="only those with a larger seq")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Items that were delivered too often, as they were then, by seq."""
    found = await database.rows(statement("consumers", "dead_letters"), {"name": name, "after": after, "limit": limit})
    return json_list([row["letter"] for row in found])


@router.post("/{name}/dead-letters/retry", response_model=Settled, summary="Retry dead letters", responses=_SETTLING)
async def retry(name: Name, database: TheDatabase, body: DeadLetterSeqs | None = None) -> dict[str, Any]:
    """They are put back into the queue, with their deliveries reset to 0."""
    return await _one(database, "retry_dead", name=name, seqs=(body or DeadLetterSeqs()).seqs)


@router.post(
    "/{name}/dead-letters/discard", response_model=Settled, summary="Discard dead letters", responses=_SETTLING
)
async def discard(name: Name, database: TheDatabase, body: DeadLetterSeqs | None = None) -> dict[str, Any]:
    """They are deleted."""
    return await _one(database, "discard_dead", name=name, seqs=(body or DeadLetterSeqs()).seqs)


def json_list(texts: list[str]) -> Response:
    """`{"data": […]}` of JSON values from Postgres; they are not parsed, so no digit is lost."""
    return Response(f'{{"data":[{",".join(texts)}]}}', media_type="application/json")


async def _hand_out(database: Pool, client: WaitingClient, name: str, wanted: Receive) -> list[str] | None:
    """Items for a client that is still connected; if it disconnected meanwhile, their delivery is rolled back."""
    parameters = {"name": name, "max": wanted.max, "visibility": wanted.visibility}
    # Of a delivery that a crash forgets the item is handed out again, as of any that is not acknowledged.
    transaction = database.transaction(durable=False)
    async with transaction as connection, connection.cursor(row_factory=scalar_row) as cursor:
        await cursor.execute(_RECEIVE_RECORDS, parameters)
        items = await cursor.fetchall()
        client.require_connected()
    return items or None


async def _change(database: Pool, change: LiteralString, name: str, **arguments: Any) -> dict[str, Any]:
    """Call a function; returns the consumer as it is then, or as it was if it was deleted."""
    async with database.transaction() as connection:
        before = await rows(connection, statement("consumers", "consumer_status"), {"name": name})
        if not before and change != "create_consumer":
            raise HTTPException(404, f"there is no consumer '{name}'; GET /v1/consumers lists all")
        await connection.execute(statement("consumers", change), {"name": name, **arguments})
        return (await rows(connection, statement("consumers", "consumer_status"), {"name": name}) or before or [{}])[0]


async def _one(database: Pool, call: LiteralString, **arguments: Any) -> dict[str, Any]:
    found = await database.rows(statement("consumers", call), arguments)
    return found[0]
