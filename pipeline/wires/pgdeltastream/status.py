"""Sessions of other systems' wires: what each does now, what it holds back at the source, and what would end it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal, get_args

from pipeline.capture.source.slots import Slot
from pipeline.config import wires
from pipeline.config.settings import Config
from pipeline.postgres.connections import Connection
from pipeline.terminal import drawing
from pipeline.wal import lsn
from pipeline.wires.pgdeltastream.sessions import backends
from pipeline.wires.pgdeltastream.sessions.store import StoredSession, walsender_name

State = Literal["making", "snapshot", "streamed", "idle", "lost", "unknown"]
"""`making`: its slot is being made. `snapshot`: its rows can be read, and no stream has begun. `streamed`: a client
reads it. `idle`: no client does. `lost`: its slot can no longer be read. `unknown`: the source does not answer."""
STATES: tuple[State, ...] = get_args(State)
LONG_IDLE = timedelta(minutes=5)
"""A session that is unused for this long is ended if a client asks for a new session and there is no room."""


@dataclass(frozen=True)
class SessionsAtSource:
    """The state of sessions at the source: slots by name, and the sessions whose snapshot can be read."""

    slots: Mapping[str, Slot]
    exporting: frozenset[str]


@dataclass(frozen=True)
class SessionStatus:
    """A session that has not ended. `since`: when its state began; of an idle one, when it was last used.

    `retained_bytes`: WAL that the source keeps for its slot; `left_bytes`: how much more it may. `ends_at`: when it is
    dropped unless it is used before; None if no time limit applies. `ends`: what would end it, in words.
    """

    slot: str
    wire: str
    state: State
    since: datetime
    created_at: datetime
    used_at: datetime
    reader: str | None = None
    position: lsn.Shown | None = None
    retained_bytes: int | None = None
    left_bytes: int | None = None
    ends_at: datetime | None = None
    ends: str = ""


@dataclass(frozen=True)
class EndedSession:
    """A session that has ended, and why."""

    slot: str
    wire: str
    ended_at: datetime
    reason: str


@dataclass(frozen=True)
class SessionsReport:
    """The sessions that have not ended, oldest first, and the limits: their number, idle time, WAL held back.

    `wires`: the served wires that have slots. `open_wires`: those of them that are served without the token.
    `ended`: the newest sessions that ended in the last day.
    """

    wires: Sequence[str]
    open_wires: Sequence[str]
    most: int
    idle_limit_seconds: float
    wal_limit_bytes: int
    live: list[SessionStatus] = field(default_factory=list)
    ended: list[EndedSession] = field(default_factory=list)


def read_source(source: Connection, known: Sequence[StoredSession], slots: Sequence[Slot]) -> SessionsAtSource:
    """Return the state of sessions at the source. `slots`: all slots of the source.

    Asks the source only if there are sessions that have not ended.
    """
    live = [each for each in known if each.state != "ended"]
    names = {walsender_name(each.slot): each.slot for each in live}
    streaming = {slot.active_pid for slot in slots}
    found = backends.find(source, live) if live else []
    exporting = {names[each.name] for each in found if each.walsender and each.pid not in streaming}
    return SessionsAtSource({slot.name: slot for slot in slots if slot.name in names.values()}, frozenset(exporting))


def report(
    config: Config, known: Sequence[StoredSession], at: SessionsAtSource | None, now: datetime
) -> SessionsReport:
    """Return the report of these sessions. `at`: their state at the source; None if it does not answer. Does no IO."""
    served, unguarded = wires.with_slots(config.wires), wires.with_slots(config.open_wires)
    limits = SessionsReport(
        served, unguarded, config.sessions_max, config.sessions_idle_seconds, config.sessions_wal_bytes
    )
    live = [_status(limits, each, at) for each in known if each.state != "ended"]
    next_to_go = _next_to_go(limits, live, now)
    return replace(
        limits,
        live=[replace(each, ends=_ends(limits, each, now, each is next_to_go)) for each in live],
        ended=[EndedSession(each.slot, each.wire, each.ended_at, each.reason or "") for each in known if each.ended_at],
    )


def _status(limits: SessionsReport, session: StoredSession, at: SessionsAtSource | None) -> SessionStatus:
    slot = at.slots.get(session.slot) if at else None
    state = _state(session, slot, at)
    kept = slot.retained_bytes if slot else None
    unused = state in ("snapshot", "idle")
    since = {"making": session.created_at, "streamed": session.reader_since or session.used_at}
    return SessionStatus(
        slot=session.slot,
        wire=session.wire,
        state=state,
        since=since.get(state, session.used_at),
        created_at=session.created_at,
        used_at=session.used_at,
        reader=_reader(session, slot) if state == "streamed" else None,
        position=None if session.position is None else lsn.Lsn(session.position),
        retained_bytes=kept,
        left_bytes=None if kept is None else max(0, limits.wal_limit_bytes - kept),
        ends_at=session.used_at + timedelta(seconds=limits.idle_limit_seconds) if unused else None,
    )


def _state(session: StoredSession, slot: Slot | None, at: SessionsAtSource | None) -> State:
    if session.state == "making":
        return "making"
    if at is None:
        return "unknown"
    if slot is None or slot.invalidated:
        return "lost"
    if slot.active_pid is not None:
        return "streamed"
    return "snapshot" if session.slot in at.exporting else "idle"


def _reader(session: StoredSession, slot: Slot | None) -> str | None:
    """Return the name of the reader: the client, else the program at the source, which may belong to another user."""
    if session.reader or slot is None:
        return session.reader
    return f"{slot.holder or 'a program'} (pid {slot.active_pid})"


def _next_to_go(limits: SessionsReport, live: Sequence[SessionStatus], now: datetime) -> SessionStatus | None:
    """Return the session that another `init` would end now."""
    if len(live) < limits.most:
        return None
    waiting = [each for each in live if each.ends_at is not None and now - each.used_at >= LONG_IDLE]
    return min(waiting, key=lambda each: each.used_at, default=None)


def _ends(limits: SessionsReport, session: SessionStatus, now: datetime, next_to_go: bool) -> str:
    if session.state == "making":
        return "if its server ends before it is made"
    if session.state == "lost":
        return "within seconds: its slot no longer exists, or has lost its WAL"
    most = drawing.size(limits.wal_limit_bytes)
    left = "" if session.left_bytes is None else f", {drawing.size(session.left_bytes)} more"
    parts = [f"if it holds back {most}{left}"]
    if session.ends_at is not None:
        parts.insert(0, f"if it is not used within {drawing.ago((session.ends_at - now).total_seconds())}")
    if next_to_go:
        parts.append("at once if a client asks for another session")
    return "; ".join(parts)
