"""Find the owner of each slot of the source: this server, its catch-up, a client's session, or another program."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psycopg

from pipeline.capture.source import slots, sources, timeline
from pipeline.capture.source.slots import Slot
from pipeline.postgres.connections import Connection
from pipeline.wires.pgdeltastream.sessions import bounds, store
from pipeline.wires.pgdeltastream.sessions.store import StoredSession

Owner = Literal["ours", "part", "session", "other"]


@dataclass(frozen=True)
class OwnedSlot(Slot):
    """A slot and its owner. `wire`: the protocol of a session.

    `whose` is None if only the pipeline database could tell, and it does not answer.
    """

    whose: Owner | None = None
    wire: str | None = None


def sessions(
    source: Connection, pipeline: Connection, source_id: uuid.UUID | None, found: Sequence[Slot]
) -> dict[str, StoredSession]:
    """The sessions of this source and cluster, by slot; without sessions whose slot was created by another user.

    `found`: the source's slots. Read them before the call, because a session's position is stored before its slot's.
    """
    try:
        stored = sources.find_in_any(pipeline, source_id)
        known = store.kept(pipeline, stored.id) if stored else []
    except psycopg.errors.UndefinedTable:  # the database has an older version
        return {}
    cluster = timeline.read_identity(source).system_identifier if known else ""
    there, database = {slot.name: slot for slot in found}, source.info.dbname
    return {
        each.slot: each
        for each in known
        if each.system_identifier == cluster
        and ((slot := there.get(each.slot)) is None or bounds.is_its_own(each, slot, database))
    }


def owned(found: Sequence[Slot], anchor: str, known: Mapping[str, StoredSession] | None) -> list[OwnedSlot]:
    """Each slot with its owner. `anchor`: our slot; `known`: sessions by slot, None if unknown."""
    return [OwnedSlot(**vars(slot), **_owner(slot.name, anchor, known)) for slot in found]


def _owner(name: str, anchor: str, known: Mapping[str, StoredSession] | None) -> dict[str, Any]:
    if name == anchor:
        return {"whose": "ours"}
    if slots.is_part(name, anchor):
        return {"whose": "part"}
    if known is None:
        return {"whose": None}
    return {"whose": "session", "wire": known[name].wire} if name in known else {"whose": "other"}
