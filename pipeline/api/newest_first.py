"""The log over HTTP, the newest events first: of all tables, or the history of one row."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Query, Request, Response
from psycopg.sql import Identifier
from starlette.exceptions import HTTPException

from pipeline.api import event_pages
from pipeline.api.event_pages import MAX_BYTES, Actions, After, Limit, Reader, Tables, Wait, parts
from pipeline.api.models import MAX_SEQ
from pipeline.api.patterns import NO_ZERO_BYTE
from pipeline.log.page_before import BackwardReader, BackwardRequest
from pipeline.postgres.pool import Pool

_Before = Annotated[int | None, Query(ge=0, le=MAX_SEQ, description="only events with a smaller seq, newest first")]
_Key = Annotated[
    str | None,
    Query(
        max_length=10_000,
        pattern=NO_ZERO_BYTE,
        description="only events of the row with this `record_pk`, newest first; `tables` names its table",
    ),
]


async def _asked(
    before: _Before = None,
    key: _Key = None,
    limit: Limit = 100,
    tables: Tables = None,
    actions: Actions = None,
    after: After = None,
    wait: Wait = 0,
    consumer: Reader = None,
) -> BackwardRequest | None:
    """Return what is asked for if `before` or `key` is given. Raises HTTPException for parameters that do not fit."""
    if consumer is not None and actions:
        raise HTTPException(422, "a consumer has its own actions; leave out actions, or consumer")
    if before is None and key is None:
        return None
    if after is not None or wait or consumer is not None:
        raise HTTPException(422, "before and key return the newest events first; leave out after, wait, consumer")
    names = parts(tables)
    if key is not None and (len(names) != 1 or "*" in names[0]):
        raise HTTPException(422, "key is the record_pk of a row; give the name of its table in tables")
    return BackwardRequest(MAX_SEQ if before is None else before, limit, MAX_BYTES, names, parts(actions), key)


NewestFirst = Annotated[BackwardRequest | None, Depends(_asked)]
"""The request that `before` and `key` make; None without them."""


async def answer(request: Request, database: Pool, events: Identifier, wanted: BackwardRequest) -> Response:
    """Return the newest wanted events, or how far the log was searched without finding one."""
    reader, until = BackwardReader(events), time.monotonic() + event_pages.SEARCH_SECONDS
    while True:
        async with request.app.state.page_turns.turn(woken=False), database.connection() as connection:
            page = await reader.read(connection, wanted)
        if page.events or not page.first_seq or time.monotonic() >= until:
            return event_pages.of_events(request, page.events, first_seq=page.first_seq, last_seq=page.head)
        wanted = replace(wanted, before=page.first_seq)
