"""Ends sessions that have reached a limit: stores the reason for the client, then drops the slot.

A slot without a reader holds back WAL at the source until its disk is full, so no session may be forgotten. If ending a
session is interrupted, its row remains, and the next check continues.
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
from pipeline.errors import PipelineError, SlotMissingError
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.wires.pgdeltastream.sessions import backends, store
from pipeline.wires.pgdeltastream.sessions.backends import page_name
from pipeline.wires.pgdeltastream.sessions.store import StoredSession, walsender_name

logger = logging.getLogger(__name__)

MAKING_SECONDS = 120.0
"""A session that is not ready after this time was left unfinished."""
TOUCH_SECONDS = 30.0
"""A session in use is marked as used if its last mark is older than this."""
_ANY_KEPT = "select exists (select from pipeline.sessions where dropped_at is null)"
"""True if there is a session whose slot may exist."""


@dataclass(frozen=True)
class SessionFacts:
    """The state of a session at the source. `slot`: the slot of its name. `in_use`: a client streams or reads.

    `restored`: the source has written less than the session's client has acknowledged. This
    can only be seen until the source has written as much again; the client would then lack changes.
    """

    slot: Slot | None
    in_use: bool
    restored: bool = False


def is_its_own(session: StoredSession, slot: Slot, database: str) -> bool:
    """True if a slot of the session's name is the slot that was created for the session.

    Positions are stored before they are confirmed, so another program made a slot that is confirmed beyond them. A slot
    that is being created has confirmed nothing, and the session's own walsender reads it.
    """
    if (slot.plugin, slot.database, slot.two_phase) != ("pgoutput", database, False):
        return False
    ours = slot.holder == walsender_name(session.slot)
    if slot.confirmed_lsn is None:
        return ours
    if session.position is None:
        return slot.confirmed_lsn >= session.made_after and (ours or slot.active_pid is None)
    return session.made_after <= slot.confirmed_lsn <= session.position


def why_end(session: StoredSession, facts: SessionFacts, now: datetime, config: Config, database: str) -> str | None:
    """Return why the session must end, for its client and the log; None if it may stay.

    `now`: the time of the pipeline database.
    """
    slot = facts.slot
    if session.state == "making":
        made_for = (now - session.created_at).total_seconds()
        return "it was never finished: the server that was creating it has ended" if made_for > MAKING_SECONDS else None
    if facts.restored:
        return "the source was restored to a state that is older than what its client had acknowledged"
    if slot is None:
        return "its slot no longer exists: it was dropped at the source"
    if not is_its_own(session, slot, database):
        return "its slot was dropped at the source, and another slot of that name was created"
    if slot.invalidated:
        return "its slot was invalidated: the source removed WAL that it still needed"
    if (kept := slot.retained_bytes or 0) > config.sessions_wal_bytes:
        return f"the source kept {kept:,} bytes of WAL for it, and PIPELINE_SESSIONS_WAL is {config.sessions_wal}"
    if not facts.in_use and (now - session.used_at).total_seconds() > config.sessions_idle_seconds:
        return f"no client used it for longer than PIPELINE_SESSIONS_IDLE = {config.sessions_idle}"
    return None


def facts(config: Config, source: Connection, sessions: list[StoredSession]) -> dict[int, SessionFacts]:
    """Return the state of these sessions at the source, by their ids."""
    slots_by_name = {slot.name: slot for slot in slots.all_slots(source)}
    names = backends.pages(config, source, sessions) if sessions else set()
    flushed = timeline.read_identity(source).flushed if sessions else 0
    facts_of: dict[int, SessionFacts] = {}
    for session in sessions:
        slot = slots_by_name.get(session.slot)
        streamed = slot is not None and slot.active_pid is not None
        in_use = streamed or page_name(session.slot) in names
        facts_of[session.id] = SessionFacts(slot, in_use, restored=(session.position or 0) > flushed)
    return facts_of


def enforce(config: Config) -> None:
    """End the sessions that must end, and drop the remaining slots of ended sessions. Only the leader may call this.

    If there are no sessions, this is a single query. Raises PipelineError or psycopg's errors if a database does not
    answer.
    """
    with connections.connect(config.database, "pipeline database", name="pipeline sessions") as pipeline:
        if not queries.value(pipeline, _ANY_KEPT):
            return
        stored = sources.find(pipeline, config.source_id)
        if stored is None or not store.kept(pipeline, stored.id):
            return
        with connections.connect(config.source, "source", name="pipeline sessions") as source:
            if (
                timeline.read_identity(source).system_identifier == stored.system_identifier
            ):  # else no slot there is a session's
                _enforce(config, source, pipeline, stored.id)
        store.forget(pipeline, stored.id)


def _enforce(config: Config, source: Connection, pipeline: Connection, source_id: uuid.UUID) -> None:
    before = {session.id: session for session in store.kept(pipeline, source_id)}
    facts_by_id = facts(config, source, list(before.values()))
    now: datetime = queries.value(pipeline, "select now()")
    for session in store.kept(pipeline, source_id):  # after the slots: positions are stored before they are confirmed
        if session.id not in facts_by_id or (before[session.id].state, session.state) == ("making", "ready"):
            continue  # its slot was created after the slots were listed
        if session.state == "ended":
            _drop(config, source, pipeline, session)
        elif reason := why_end(session, facts_by_id[session.id], now, config, source.info.dbname):
            end(config, source, pipeline, session, reason)
        elif facts_by_id[session.id].in_use and (now - session.used_at).total_seconds() > TOUCH_SECONDS:
            store.touch(pipeline, session.id)


def end(
    config: Config,
    source: Connection,
    pipeline: Connection,
    session: StoredSession,
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


def _drop(config: Config, source: Connection, pipeline: Connection, session: StoredSession) -> None:
    """Drop the slot of an ended session, after ending the backends that could still create it."""
    try:
        # At another cluster, a slot of this name is not the session's.
        if timeline.read_identity(source).system_identifier == session.system_identifier:
            backends.end(config, source, session)
            _drop_slot(source, pipeline, session)
    except (PipelineError, psycopg.Error) as error:
        values = {"action": "session.slot_kept", "session": session.slot}
        level = logging.WARNING if session.ended_at is None else logging.DEBUG  # warn only once
        logger.log(level, 'slot "%s" is left for now: %s', session.slot, connections.one_line(error), extra=values)
        return
    store.dropped(pipeline, session.id)


def _drop_slot(source: Connection, pipeline: Connection, session: StoredSession) -> None:
    """Drop the slot if it exists and is the session's own."""
    slot = slots.find(source, session.slot)
    now = store.get(pipeline, session.id) or session  # after the slot: positions are stored first
    if slot is None or not is_its_own(now, slot, source.info.dbname):
        return
    if slot.active_pid is not None:
        slots.end_walsender(source, slot)
    try:
        slots.drop(source, session.slot)
    except SlotMissingError:  # a slot that is being created ends with its walsender
        logger.debug("the slot has gone with its walsender", extra={"action": "session.slot_gone"})
