"""Whose the slots of the source are: the server's, copies of it for a backlog, a session's, or somebody else's."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psycopg

from pipeline.capture.sessions import store
from pipeline.capture.sessions.store import Session
from pipeline.capture.source import slots, sources, timeline
from pipeline.capture.source.slots import Slot
from pipeline.postgres.connections import Connection

Owner = Literal["ours", "part", "session", "other"]


@dataclass(frozen=True)
class OwnedSlot(Slot):
    """`whose` is None where only the pipeline database could tell, and it does not answer. `wire`: of a session."""

    whose: Owner | None = None
    wire: str | None = None


def sessions(source: Connection, pipeline: Connection, source_id: uuid.UUID | None) -> dict[str, Session]:
    """By slot, those of this source and cluster whose slots may exist. A database of an older version has none."""
    try:
        stored = sources.find_in_any(pipeline, source_id)
        found = store.kept(pipeline, stored.id) if stored else []
    except psycopg.errors.UndefinedTable:
        return {}
    cluster = timeline.identity(source).system_identifier if found else ""
    return {each.slot: each for each in found if each.system_identifier == cluster}


def owned(found: Sequence[Slot], anchor: str, known: Mapping[str, Session] | None) -> list[OwnedSlot]:
    """Each slot with its owner. `anchor`: our slot; `known`: sessions by slot, None where they are not known."""
    return [OwnedSlot(**vars(slot), **_owner(slot.name, anchor, known)) for slot in found]


def _owner(name: str, anchor: str, known: Mapping[str, Session] | None) -> dict[str, Any]:
    if name == anchor:
        return {"whose": "ours"}
    if slots.is_part(name, anchor):
        return {"whose": "part"}
    if known is None:
        return {"whose": None}
    return {"whose": "session", "wire": known[name].wire} if name in known else {"whose": "other"}
