"""Parameters, limits and answers that both directions of reading events share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query, Request, Response

from pipeline.api.long_poll import MAX_SECONDS
from pipeline.api.models import MAX_SEQ
from pipeline.api.patterns import ACTIONS, NAME, NO_ZERO_BYTE, TABLES

NDJSON = "application/x-ndjson"
MAX_BYTES = 8_000_000
"""A page ends once it has this many characters. A single event may be larger."""
SEARCH_SECONDS = 2.0
"""Seconds after which a request that has found no event yet ends, or lets others read."""

After = Annotated[
    int | None, Query(ge=0, le=MAX_SEQ, description="only events with a larger seq; default: all kept events")
]
Limit = Annotated[int, Query(ge=1, le=1000, description="the most events to return")]
Wait = Annotated[
    float, Query(ge=0, le=MAX_SECONDS, allow_inf_nan=False, description="seconds to wait for the first event")
]
Tables = Annotated[
    str | None,
    Query(max_length=4000, pattern=TABLES, description="`schema.table`, comma separated, `*` matches anything"),
]
NamedTable = Annotated[
    str | None,
    Query(
        max_length=200,
        pattern=NO_ZERO_BYTE,
        description="the events table to read, if routes send changes to several",
    ),
]
Reader = Annotated[
    str | None, Query(pattern=NAME, description="a cursor: read from its position, with its tables and actions")
]
Actions = Annotated[str | None, Query(pattern=ACTIONS, description="actions, comma separated")]


def parts(text: str | None) -> tuple[str, ...]:
    """Return the parts of a parameter that is comma separated."""
    return tuple(part.strip() for part in text.split(",")) if text else ()


def of_events(request: Request, events: Sequence[str], **seqs: int) -> Response:
    """Return the events and these seqs. The events are not parsed, so no digit is lost."""
    headers = {name.title().replace("_", "-"): str(seq) for name, seq in seqs.items()} | {"Vary": "Accept"}
    if NDJSON in request.headers.get("accept", ""):
        return Response("".join(f"{event}\n" for event in events), media_type=NDJSON, headers=headers)
    shown = "".join(f',"{name}":{seq}' for name, seq in seqs.items())
    return Response(f'{{"data":[{",".join(events)}]{shown}}}', media_type="application/json", headers=headers)
