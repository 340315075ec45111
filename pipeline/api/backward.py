"""Answers with events as Postgres printed them, and those that read the log backward."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from fastapi import Request, Response
from psycopg.sql import Identifier

from pipeline.log.page_before import BackwardReader, BackwardRequest
from pipeline.postgres.pool import Pool

NDJSON = "application/x-ndjson"
SEARCH_SECONDS = 2.0
"""Seconds after which a request that has found no event yet says how far it has looked."""


async def answer(request: Request, database: Pool, events: Identifier, wanted: BackwardRequest) -> Response:
    """Return the newest wanted events, or how far the log was searched without finding one."""
    reader, until = BackwardReader(events), time.monotonic() + SEARCH_SECONDS
    while True:
        async with request.app.state.page_turns.turn(woken=False), database.connection() as connection:
            page = await reader.read(connection, wanted)
        if page.events or not page.first_seq or time.monotonic() >= until:
            return of_events(request, page.events, first_seq=page.first_seq, last_seq=page.head)
        wanted = replace(wanted, before=page.first_seq)


def of_events(request: Request, events: Sequence[str], **seqs: int) -> Response:
    """Return the events and these seqs. The events are not parsed, so no digit is lost."""
    headers = {name.title().replace("_", "-"): str(seq) for name, seq in seqs.items()} | {"Vary": "Accept"}
    if NDJSON in request.headers.get("accept", ""):
        return Response("".join(f"{event}\n" for event in events), media_type=NDJSON, headers=headers)
    shown = "".join(f',"{name}":{seq}' for name, seq in seqs.items())
    return Response(f'{{"data":[{",".join(events)}]{shown}}}', media_type="application/json", headers=headers)
