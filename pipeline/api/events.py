"""The log over HTTP: a page of events after a seq, at once or as soon as events arrive."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from fastapi import APIRouter, Depends, Request, Response
from psycopg.sql import Identifier
from starlette.exceptions import HTTPException

from pipeline.api import newest_first
from pipeline.api.database import TheDatabase, TheWakeups
from pipeline.api.event_pages import (
    MAX_BYTES,
    NDJSON,
    SEARCH_SECONDS,
    Actions,
    After,
    Limit,
    NamedTable,
    Reader,
    Tables,
    Wait,
    of_events,
    parts,
)
from pipeline.api.long_poll import WaitingClient, until_found
from pipeline.api.models import Events
from pipeline.api.newest_first import NewestFirst
from pipeline.api.parameters import refuse_unknown
from pipeline.api.problems import documented
from pipeline.api.turns import PageTurns
from pipeline.log import shapes
from pipeline.log.entry import JsonEvent
from pipeline.log.page import (
    DEFAULT_LOG,
    EVERYTHING,
    EventFilter,
    EventPageReader,
    EventPageRequest,
    NewestSeq,
    OldestKeptSeq,
    beyond,
    is_expired,
)
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import AsyncConnection
from pipeline.postgres.pool import Pool, rows
from pipeline.postgres.queries import statement

PAGES_AT_ONCE = 4
"""The most pages that are read at the same time, so that other requests find a connection."""
_FIRST_ROWS = 10

router = APIRouter(
    prefix="/v1/events", tags=["events"], responses=documented(422), dependencies=[Depends(refuse_unknown)]
)


@dataclass
class _Reading:
    """The state of one request. `after`: None until the start is known. `woken`: True once the request has waited."""

    table: str
    limit: int
    after: int | None
    wanted: EventFilter
    consumer: str | None
    events: list[str] = field(default_factory=list)
    unfinished: bool = False
    pages: EventPageReader[JsonEvent] = shapes.JSON
    woken: bool = False


@router.get(
    "",
    summary="Read events",
    response_model=Events,
    responses={**documented(404, 409, 410), 200: {"content": {NDJSON: {"schema": {"type": "string"}}}}},
)
async def read(
    request: Request,
    database: TheDatabase,
    wakeups: TheWakeups,
    after: After = None,
    limit: Limit = 100,
    wait: Wait = 0,
    tables: Tables = None,
    events_table: NamedTable = None,
    consumer: Reader = None,
    actions: Actions = None,
    backward: NewestFirst = None,
) -> Response:
    """Return events in order of seq. No event with a smaller seq ever appears later.

    `Accept: application/x-ndjson` gives one event per line. Continue with `after` = `last_seq`, which NDJSON has in the
    header `Last-Seq`. If `data` is empty, `last_seq` can still grow: no event up to this seq matched. Reading moves no
    cursor; `advance` does.

    With `before` or `key`, the newest events come first. Continue with `before` = `first_seq`, which NDJSON has in the
    header `First-Seq`; 0: no older event is left. If `data` is empty, no event from `first_seq` on matched.
    """
    known: Sequence[str] = request.app.state.events_tables
    if backward is not None:
        return await newest_first.answer(request, database, _relation(_table(known, events_table), known[0]), backward)
    names, chosen = parts(tables), parts(actions)
    wanted = EventFilter(within=names, actions=chosen) if names or chosen else EVERYTHING
    table = _table(known, events_table) if consumer is None else await _read_by(database, known, events_table, consumer)
    reading = _Reading(table, limit, after, wanted, consumer, pages=_pages(table, known[0]))
    with wakeups.for_events(*([consumer] if consumer else []), table=table) as subscription:

        async def search(_client: WaitingClient) -> list[str] | None:
            return await _search(database, request.app.state.page_turns, reading)

        async def due() -> float | None:
            return 0.0 if reading.unfinished else None

        await until_found(request, subscription, wait, search, due)
    return of_events(request, reading.events, last_seq=reading.after or 0)


def _pages(table: str, default: str) -> EventPageReader[JsonEvent]:
    return shapes.JSON if table == default else shapes.json_of(_relation(table, default))


def _relation(table: str, default: str) -> Identifier:
    return DEFAULT_LOG if table == default else EventsTable.parse(table).identifier


async def _read_by(database: Pool, known: Sequence[str], asked: str | None, consumer: str) -> str:
    """Return the events table that a consumer reads, also if no route sends changes to it any longer."""
    found = await database.rows(statement("api", "find_reader"), {"name": consumer})
    table = str(found[0]["events_table"] or known[0]) if found else known[0]
    if asked not in (None, table):
        raise HTTPException(422, f'consumer "{consumer}" reads {table}; leave out events_table, or consumer')
    if found and not found[0]["table_exists"]:
        raise HTTPException(
            410,
            f'consumer "{consumer}" reads {table}, which no longer exists; restore the table, or delete the consumer',
        )
    return table


def _table(known: Sequence[str], asked: str | None) -> str:
    """Return the events table to read: the requested one, or the default one."""
    if asked is None or asked == known[0]:
        return known[0]
    if asked not in known:
        raise HTTPException(404, f"there is no events table {asked!r} in the settings; there are: {', '.join(known)}")
    return asked


async def _search(database: Pool, turns: PageTurns, reading: _Reading) -> list[str] | None:
    """Read until an event matches, the head is reached, or SEARCH_SECONDS have passed."""
    until = time.monotonic() + SEARCH_SECONDS
    reading.unfinished = True
    while reading.unfinished and not reading.events and time.monotonic() < until:
        async with turns.turn(woken=reading.woken), database.connection() as connection:
            reading.unfinished = await _begin(connection, reading) and await _read_on(connection, reading)
    reading.woken = not reading.unfinished
    return reading.events or None


async def _begin(connection: AsyncConnection, reading: _Reading) -> bool:
    """Determine the position and the filter of the request. Returns False if the consumer is paused."""
    if reading.consumer is None:
        if reading.after is None:
            reading.after = await _kept_from(reading.table).read_async(connection) - 1
        return True
    readers = await rows(connection, statement("api", "find_reader"), {"name": reading.consumer})
    if not readers:
        raise HTTPException(404, f'consumer "{reading.consumer}" does not exist; POST /v1/consumers creates one')
    found = readers[0]
    if found["kind"] != "cursor":
        raise HTTPException(409, f'consumer "{reading.consumer}" is not a cursor; POST …/receive delivers its items')
    reading.wanted = replace(reading.wanted, tables=tuple(found["tables"]), actions=tuple(found["actions"]))
    if reading.after is None:
        reading.after = found["position"]
    return bool(found["state"] == "active")


async def _read_on(connection: AsyncConnection, reading: _Reading) -> bool:
    """Read the next part of the log, up to the limits of an answer. Returns True if more may follow."""
    begun = after = reading.after or 0
    size, rows, full = 0, _FIRST_ROWS, True
    while full and (left := reading.limit - len(reading.events)) > 0 and size < MAX_BYTES:
        wanted = EventPageRequest(after, min(rows, left), MAX_BYTES - size, reading.wanted)
        page = await reading.pages.read_async(connection, wanted)
        reading.events += [entry.event for entry in page.entries]
        after, size, rows, full = page.upto, size + page.size, page.next_rows, page.full
    kept_from, lost = await _kept_from(reading.table).read_with_lost_async(connection, begun)
    if lost:
        raise HTTPException(410, str(lost))
    if is_expired(begun, kept_from):
        raise HTTPException(410, _expired(reading, kept_from))
    if page.beyond_head:
        newest = await NewestSeq(EventsTable.parse(reading.table)).read_async(connection)
        if wrong := beyond(begun, newest, kept_from):
            raise HTTPException(422, wrong)
    reading.after = after
    return not page.at_head


@cache
def _kept_from(table: str) -> OldestKeptSeq:
    return OldestKeptSeq(EventsTable.parse(table))


def _expired(reading: _Reading, below: int) -> str:
    dropped = f"the events up to seq {below - 1} were dropped by retention"
    if reading.consumer is not None:
        return f'{dropped}; reset consumer "{reading.consumer}" to continue with the remaining events'
    return f"{dropped}; continue with after={below - 1}, or without after"
