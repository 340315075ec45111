"""Which sessions must go, and why; and how they go: first the reason, so that the client reads it, then the slot.

A slot that nobody reads holds back WAL at the source until its disk is full, so no session may be forgotten: whatever
ends half way is found by the session's row, and is ended at the next look.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from datetime import datetime

import psycopg

from pipeline.capture.source import slots, sources, timeline
from pipeline.capture.source.slots import Slot
from pipeline.config.settings import Config
from pipeline.errors import PipelineError, SlotMissing
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.wires.pgdeltastream.sessions import backends, store
from pipeline.wires.pgdeltastream.sessions.backends import page_name
from pipeline.wires.pgdeltastream.sessions.store import Session, walsender_name

logger = logging.getLogger(__name__)

MAKING_SECONDS = 120.0
"""A session that is not ready after so long was left half-made."""
TOUCH_SECONDS = 30.0
"""A session in use is marked as used when that is longer ago than this."""
_ANY_KEPT = "select exists (select from pipeline.sessions where dropped_at is null)"
"""Whether there is a session whose slot may exist."""


@dataclass(frozen=True)
class Facts:
    """What the source has of a session. `slot`: that of its name, whoever made it. `in_use`: it is streamed or read.

    `restored`: the source has written less than the session's client has acknowledged. Once it has written as much
    again that cannot be seen any more, and the client would lack what is written until then.
    """

    slot: Slot | None
    in_use: bool
    restored: bool = False


def is_its_own(session: Session, slot: Slot, database: str) -> bool:
    """Whether a slot of the session's name is the one that was made for it.

    Positions are stored before they are confirmed, so a slot confirmed beyond them was made by somebody else. One that
    is just being made has confirmed nothing, and is read by the session's own walsender.
    """
    if (slot.plugin, slot.database, slot.two_phase) != ("pgoutput", database, False):
        return False
    ours = slot.holder == walsender_name(session.slot)
    if slot.confirmed_lsn is None:
        return ours
    if session.position is None:
        return slot.confirmed_lsn >= session.made_after and (ours or slot.active_pid is None)
    return session.made_after <= slot.confirmed_lsn <= session.position


def why_end(session: Session, facts: Facts, now: datetime, config: Config, database: str) -> str | None:
    """Why the session must end, in words for its client and the log; None while it need not. `now`: as `used_at`."""
    slot = facts.slot
    if session.state == "making":
        made_for = (now - session.created_at).total_seconds()
        return "it was never finished: whoever made it has ended" if made_for > MAKING_SECONDS else None
    if facts.restored:
        return "the source was restored to a state from before what its client had acknowledged"
    if slot is None:
        return "its slot does not exist any more: somebody dropped it at the source"
    if not is_its_own(session, slot, database):
        return "its slot was dropped at the source, and somebody made another one of that name"
    if slot.invalidated:
        return "its slot was invalidated: the source removed WAL that it still needed"
    if (kept := slot.retained_bytes or 0) > config.sessions_wal_bytes:
        return f"the source kept {kept:,} bytes of WAL for it, and PIPELINE_SESSIONS_WAL is {config.sessions_wal}"
    if not facts.in_use and (now - session.used_at).total_seconds() > config.sessions_idle_seconds:
        return f"nobody used it for longer than PIPELINE_SESSIONS_IDLE = {config.sessions_idle}"
    return None


def facts(config: Config, source: Connection, sessions: list[Session]) -> dict[int, Facts]:
    """What the source has of these sessions, by their ids."""
    there = {slot.name: slot for slot in slots.all_slots(source)}
    names = backends.pages(config, source, sessions) if sessions else set()
    flushed = timeline.identity(source).flushed if sessions else 0
    found = {}
    for session in sessions:
        slot = there.get(session.slot)
        streamed = slot is not None and slot.active_pid is not None
        in_use = streamed or page_name(session.slot) in names
        found[session.id] = Facts(slot, in_use, restored=(session.position or 0) > flushed)
    return found


def enforce(config: Config) -> None:
    """End the sessions that must end, and drop slots of ended ones that are still there. Only the leader may call this.

    One query where there are none. Raises PipelineError or psycopg's errors where a database does not answer.
    """
    with connections.connect(config.database, "pipeline database", name="pipeline sessions") as pipeline:
        if not queries.value(pipeline, _ANY_KEPT):
            return
        stored = sources.find(pipeline, config.source_id)
        if stored is None or not store.kept(pipeline, stored.id):
            return
        with connections.connect(config.source, "source", name="pipeline sessions") as source:
            if timeline.identity(source).system_identifier == stored.system_identifier:  # else nothing there is ours
                _enforce(config, source, pipeline, stored.id)
        store.forget(pipeline, stored.id)


def _enforce(config: Config, source: Connection, pipeline: Connection, source_id: uuid.UUID) -> None:
    before = {session.id: session for session in store.kept(pipeline, source_id)}
    there = facts(config, source, list(before.values()))
    now: datetime = queries.value(pipeline, "select now()")
    for session in store.kept(pipeline, source_id):  # after the slots: positions are stored before they are confirmed
        if session.id not in there or (before[session.id].state, session.state) == ("making", "ready"):
            continue  # its slot was made after the slots were looked at
        if session.state == "ended":
            _drop(config, source, pipeline, session)
        elif reason := why_end(session, there[session.id], now, config, source.info.dbname):
            end(config, source, pipeline, session, reason)
        elif there[session.id].in_use and (now - session.used_at).total_seconds() > TOUCH_SECONDS:
            store.touch(pipeline, session.id)


def end(
    config: Config,
    source: Connection,
    pipeline: Connection,
    session: Session,
    reason: str,
    level: int = logging.WARNING,
) -> None:
    """Mark the session as ended, end what it has running at the source, and drop its slot.

    A slot that cannot be dropped now is dropped by `enforce` later.
    """
    if store.end(pipeline, session.id, reason):
        values = {"action": "session.ended", "session": session.slot, "wire": session.wire}
        logger.log(level, 'session "%s" has ended: %s', session.slot, reason, extra=values)
    _drop(config, source, pipeline, session)


def end_all(config: Config, source: Connection, pipeline: Connection, source_id: uuid.UUID, reason: str) -> None:
    """End every session of a source, and drop their slots as far as that is possible now."""
    for session in store.kept(pipeline, source_id):
        end(config, source, pipeline, session, reason)


def _drop(config: Config, source: Connection, pipeline: Connection, session: Session) -> None:
    """Drop the slot of an ended session. First what could still make it ends: afterwards none comes."""
    try:
        # What has its name at another cluster is somebody else's.
        if timeline.identity(source).system_identifier == session.system_identifier:
            backends.end(config, source, session)
            _drop_slot(source, pipeline, session)
    except (PipelineError, psycopg.Error) as error:
        values = {"action": "session.slot_kept", "session": session.slot}
        level = logging.WARNING if session.ended_at is None else logging.DEBUG  # said once
        logger.log(level, 'slot "%s" is left for now: %s', session.slot, connections.one_line(error), extra=values)
        return
    store.dropped(pipeline, session.id)


def _drop_slot(source: Connection, pipeline: Connection, session: Session) -> None:
    """Drop the slot if it is there, and the session's own."""
    slot = slots.find(source, session.slot)
    now = store.get(pipeline, session.id) or session  # its position, read after what the slot has confirmed
    if slot is None or not is_its_own(now, slot, source.info.dbname):
        return
    if slot.active_pid is not None:
        slots.end_walsender(source, slot)
    try:
        slots.drop(source, session.slot)
    except SlotMissing:  # one that was being made ends with its walsender
        logger.debug("the slot has gone with its walsender", extra={"action": "session.slot_gone"})
