"""The HTTP endpoints of consumers: a thin layer over the SQL functions, with one transaction for each request."""

from __future__ import annotations

from typing import Annotated, Any, LiteralString

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from psycopg.rows import scalar_row
from starlette.exceptions import HTTPException

from pipeline.api.database import TheDatabase, TheWakeups
from pipeline.api.logged_actions import LOGGED
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
from pipeline.api.problems import changed_letters, documented
from pipeline.api.shared_reads import TheReads
from pipeline.consumers.status import find_consumers
from pipeline.postgres.pool import Pool, rows
from pipeline.postgres.queries import statement

router = APIRouter(
    prefix="/v1/consumers", tags=["consumers"], responses=documented(422), dependencies=[Depends(refuse_unknown)]
)

Name = Annotated[str, Path(pattern=NAME, description="the consumer's name", examples=["mailer"])]
_NOT_FOUND = documented(404)
_NOT_FOUND_OR_CONFLICT = documented(404, 409)
_RECEIVE_RECORDS = """\
select row_to_json(item)::text as item
from pipeline.receive(%(name)s::text, %(max)s::int, make_interval(secs => %(visibility)s::float8)) as item
"""
"""SQL that delivers items, each as its JSON text."""


@router.post(
    "",
    status_code=201,
    response_model=Consumer,
    summary="Create a consumer",
    responses=documented(409, 410),
    dependencies=LOGGED,
)
async def create(body: NewConsumer, database: TheDatabase, request: Request, response: Response) -> dict[str, Any]:
    """Create a consumer. It receives the events that are written to the log from now on, or after `start`."""
    found = await _change(database, "create_consumer", body.name, **body.model_dump(exclude={"name"}))
    response.headers["Location"] = f"/v1/consumers/{body.name}"
    request.state.subject = body.name
    return found


@router.get("", response_model=Consumers, summary="List consumers")
async def everyone(reads: TheReads) -> Response:
    """List all consumers with their status, ordered by name. May be 2 s old."""
    return await reads.answer_list("consumers", Consumers, find_consumers)


@router.get("/{name}", response_model=Consumer, summary="Show a consumer", responses=_NOT_FOUND)
async def one(name: Name, database: TheDatabase) -> dict[str, Any]:
    """Show the settings and the status of a consumer."""
    found = await database.rows(statement("consumers", "consumer_status"), {"name": name})
    if not found:
        raise HTTPException(404, f'consumer "{name}" does not exist; GET /v1/consumers lists all')
    return found[0]


@router.delete(
    "/{name}", response_model=Consumer, summary="Delete a consumer", responses=_NOT_FOUND, dependencies=LOGGED
)
async def delete(name: Name, database: TheDatabase) -> dict[str, Any]:
    """Delete a consumer with its unacknowledged items; the log stays. Returns the consumer as it was."""
    return await _change(database, "drop_consumer", name)


@router.post(
    "/{name}/pause", response_model=Consumer, summary="Pause a consumer", responses=_NOT_FOUND, dependencies=LOGGED
)
async def pause(name: Name, database: TheDatabase) -> dict[str, Any]:
    """Deliver no more items; changes are still kept for the consumer. Delivered items can still be acknowledged."""
    return await _change(database, "pause_consumer", name)


@router.post(
    "/{name}/resume", response_model=Consumer, summary="Resume a consumer", responses=_NOT_FOUND, dependencies=LOGGED
)
async def resume(name: Name, database: TheDatabase) -> dict[str, Any]:
    """Deliver items to a paused consumer again."""
    return await _change(database, "resume_consumer", name)


@router.post(
    "/{name}/reset",
    response_model=Consumer,
    summary="Reset a consumer",
    responses=documented(404, 409, 410),
    dependencies=LOGGED,
)
async def reset(name: Name, database: TheDatabase, body: Reset | None = None) -> dict[str, Any]:
    """Start the consumer again at `start`. Its unacknowledged items are forgotten; late acknowledgements do nothing."""
    return await _change(database, "reset_consumer", name, start=(body or Reset()).start)


@router.post("/{name}/receive", response_model=Items, summary="Receive items", responses=_NOT_FOUND_OR_CONFLICT)
async def receive(
    name: Name, request: Request, database: TheDatabase, wakeups: TheWakeups, body: Receive | None = None
) -> Response:
    """Deliver the oldest available items of a records consumer. With `wait`, the answer comes when there is an item.

    Acknowledge each item by its `ack_id` within `visibility` seconds, or it is delivered again.
    """
    wanted = body or Receive()
    with wakeups.for_consumer(name) as subscription:

        async def deliver(client: WaitingClient) -> list[str] | None:
            return await _deliver_items(database, client, name, wanted)

        async def seconds_until_due() -> float | None:
            seconds: float | None = (await _query_row(database, "next_visible", name=name))["seconds"]
            return seconds

        items = await until_found(request, subscription, wanted.wait, deliver, seconds_until_due)
    return json_list(items or [])


@router.post("/{name}/ack", response_model=Settled, summary="Acknowledge items", responses=_NOT_FOUND_OR_CONFLICT)
async def ack(name: Name, body: Ack, database: TheDatabase) -> dict[str, Any]:
    """Acknowledge items. They are not delivered again, unless their row has changed since the delivery."""
    return await _query_row(database, "ack_records", name=name, ack_ids=body.ack_ids)


@router.post("/{name}/nack", response_model=Settled, summary="Refuse items", responses=_NOT_FOUND_OR_CONFLICT)
async def nack(name: Name, body: Nack, database: TheDatabase) -> dict[str, Any]:
    """Refuse items. They are delivered again after `delay`; after `max_deliveries` deliveries they are dead letters."""
    return await _query_row(database, "nack_records", name=name, ack_ids=body.ack_ids, delay=body.delay)


@router.post("/{name}/extend", response_model=Settled, summary="Keep items longer", responses=_NOT_FOUND_OR_CONFLICT)
async def extend(name: Name, body: Extend, database: TheDatabase) -> dict[str, Any]:
    """Extend deliveries: the items are not delivered again before `visibility` seconds from now."""
    return await _query_row(database, "extend_records", name=name, ack_ids=body.ack_ids, visibility=body.visibility)


@router.post("/{name}/advance", response_model=Position, summary="Move a cursor", responses=_NOT_FOUND_OR_CONFLICT)
async def advance(name: Name, body: Advance, database: TheDatabase) -> dict[str, Any]:
    """Acknowledge everything up to `seq`; this never moves a cursor back. Returns its position."""
    return await _query_row(database, "move_cursor", name=name, seq=body.seq)


@router.get(
    "/{name}/dead-letters", response_model=DeadLetters, summary="List dead letters", responses=_NOT_FOUND_OR_CONFLICT
)
async def dead_letters(
    name: Name,
    database: TheDatabase,
    after: Annotated[int, Query(ge=0, le=MAX_SEQ, description="only those with a larger seq")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List the items that were delivered too often, as they were at their last delivery, ordered by seq."""
    found = await database.rows(statement("consumers", "dead_letters"), {"name": name, "after": after, "limit": limit})
    return json_list([row["letter"] for row in found])


@router.post(
    "/{name}/dead-letters/retry",
    response_model=Settled,
    summary="Retry dead letters",
    responses=_NOT_FOUND_OR_CONFLICT,
    dependencies=LOGGED,
)
async def retry(name: Name, database: TheDatabase, body: DeadLetterSeqs | None = None) -> dict[str, Any]:
    """Put dead letters back into the queue, with their deliveries reset to 0."""
    return await _settle_dead(database, "retry_dead", name, body or DeadLetterSeqs())


@router.post(
    "/{name}/dead-letters/discard",
    response_model=Settled,
    summary="Discard dead letters",
    responses=_NOT_FOUND_OR_CONFLICT,
    dependencies=LOGGED,
)
async def discard(name: Name, database: TheDatabase, body: DeadLetterSeqs | None = None) -> dict[str, Any]:
    """Delete dead letters."""
    return await _settle_dead(database, "discard_dead", name, body or DeadLetterSeqs())


def json_list(texts: list[str]) -> Response:
    """Return `{"data": […]}` of JSON values from Postgres; they are not parsed, so that no digit is lost."""
    return Response(f'{{"data":[{",".join(texts)}]}}', media_type="application/json")


async def _deliver_items(database: Pool, client: WaitingClient, name: str, wanted: Receive) -> list[str] | None:
    """Deliver items to a client. If it has disconnected, roll the delivery back. None if no item is available."""
    parameters = {"name": name, "max": wanted.max, "visibility": wanted.visibility}
    # If a crash undoes a delivery, its items are delivered again, like all items that are not acknowledged.
    transaction = database.transaction(durable=False)
    async with transaction as connection, connection.cursor(row_factory=scalar_row) as cursor:
        await cursor.execute(_RECEIVE_RECORDS, parameters)
        items = await cursor.fetchall()
        client.require_connected()
    return items or None


async def _change(database: Pool, change: LiteralString, name: str, **arguments: Any) -> dict[str, Any]:
    """Call a function that changes a consumer; return the consumer after it, or before it if it was deleted."""
    async with database.transaction() as connection:
        before = await rows(connection, statement("consumers", "consumer_status"), {"name": name})
        if not before and change != "create_consumer":
            raise HTTPException(404, f"there is no consumer '{name}'; GET /v1/consumers lists all")
        await connection.execute(statement("consumers", change), {"name": name, **arguments})
        return (await rows(connection, statement("consumers", "consumer_status"), {"name": name}) or before or [{}])[0]


async def _settle_dead(database: Pool, change: LiteralString, name: str, chosen: DeadLetterSeqs) -> dict[str, Any]:
    """Retry or discard the chosen dead letters; none if there are more or fewer of them than the client has counted."""
    seqs = chosen.seqs
    async with database.transaction() as connection:
        if chosen.through is not None:
            values = {"name": name, "through": chosen.through}
            dead = await rows(connection, statement("consumers", "dead_seqs"), values)
            if len(dead) != chosen.count:
                raise HTTPException(409, changed_letters(len(dead), chosen.through, chosen.count))
            seqs = [each["seq"] for each in dead]
        return (await rows(connection, statement("consumers", change), {"name": name, "seqs": seqs}))[0]


async def _query_row(database: Pool, name_of_statement: LiteralString, **arguments: Any) -> dict[str, Any]:
    found = await database.rows(statement("consumers", name_of_statement), arguments)
    return found[0]
