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
from pipeline.wires.pgdeltastream.sessions.store import Session, walsender_name

State = Literal["making", "snapshot", "streamed", "idle", "lost", "unknown"]
"""`making`: its slot is being made. `snapshot`: its rows can be read, and no stream has begun. `streamed`: a client
reads it. `idle`: nobody does. `lost`: its slot cannot be read any more. `unknown`: the source does not answer."""
STATES: tuple[State, ...] = get_args(State)
LONG_IDLE = timedelta(minutes=5)
"""From then on a session gives way where another one is asked for and there is no room."""


@dataclass(frozen=True)
class AtSource:
    """Of sessions at the source: their slots by name, and which sessions hold a snapshot that can be read."""

    slots: Mapping[str, Slot]
    exporting: frozenset[str]


@dataclass(frozen=True)
class SessionStatus:
    """A session that has not ended. `since`: when its state began; of an idle one, when it was last used.

    `retained_bytes`: WAL that the source keeps for its slot; `left_bytes`: how much more it may. `ends_at`: when it is
    dropped unless it is used before; None where no time decides. `ends`: what would end it, in words.
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
class Ended:
    """A session that has ended, and why."""

    slot: str
    wire: str
    ended_at: datetime
    reason: str


@dataclass(frozen=True)
class Sessions:
    """Those that have not ended, oldest first, and the limits for each: how many, idle time, WAL held back.

    `wires`: those with slots that are served with these settings, `open_wires` of them without the token. `ended`:
    sessions that ended in the last day, of the newest ones.
    """

    wires: Sequence[str]
    open_wires: Sequence[str]
    most: int
    idle_limit_seconds: float
    wal_limit_bytes: int
    live: list[SessionStatus] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)


def look(source: Connection, known: Sequence[Session], slots: Sequence[Slot]) -> AtSource:
    """The source is asked only where sessions are known that have not ended; `slots`: all that it has."""
    live = [each for each in known if each.state != "ended"]
    names = {walsender_name(each.slot): each.slot for each in live}
    streaming = {slot.active_pid for slot in slots}
    found = backends.of(source, live) if live else []
    exporting = {names[each.name] for each in found if each.walsender and each.pid not in streaming}
    return AtSource({slot.name: slot for slot in slots if slot.name in names.values()}, frozenset(exporting))


def of(config: Config, known: Sequence[Session], at: AtSource | None, now: datetime) -> Sessions:
    """The sessions that are known, as they are `at` the source; None where it does not answer. Asks nobody."""
    served, unguarded = wires.with_slots(config.wires), wires.with_slots(config.open_wires)
    limits = Sessions(served, unguarded, config.sessions_max, config.sessions_idle_seconds, config.sessions_wal_bytes)
    live = [_status(limits, each, at) for each in known if each.state != "ended"]
    next_to_go = _next_to_go(limits, live, now)
    return replace(
        limits,
        live=[replace(each, ends=_ends(limits, each, now, each is next_to_go)) for each in live],
        ended=[Ended(each.slot, each.wire, each.ended_at, each.reason or "") for each in known if each.ended_at],
    )


def _status(limits: Sessions, session: Session, at: AtSource | None) -> SessionStatus:
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


def _state(session: Session, slot: Slot | None, at: AtSource | None) -> State:
    if session.state == "making":
        return "making"
    if at is None:
        return "unknown"
    if slot is None or slot.invalidated:
        return "lost"
    if slot.active_pid is not None:
        return "streamed"
    return "snapshot" if session.slot in at.exporting else "idle"


def _reader(session: Session, slot: Slot | None) -> str | None:
    """Who streams it: the client, else the program at the source, which may be somebody else's."""
    if session.reader or slot is None:
        return session.reader
    return f"{slot.holder or 'a program'} (pid {slot.active_pid})"


def _next_to_go(limits: Sessions, live: Sequence[SessionStatus], now: datetime) -> SessionStatus | None:
    """The session that another `init` would end now."""
    if len(live) < limits.most:
        return None
    waiting = [each for each in live if each.ends_at is not None and now - each.used_at >= LONG_IDLE]
    return min(waiting, key=lambda each: each.used_at, default=None)


def _ends(limits: Sessions, session: SessionStatus, now: datetime, next_to_go: bool) -> str:
    if session.state == "making":
        return "if its server ends before it is made"
    if session.state == "lost":
        return "in seconds: its slot is gone, or has lost its WAL"
    most = drawing.size(limits.wal_limit_bytes)
    left = "" if session.left_bytes is None else f", {drawing.size(session.left_bytes)} more"
    parts = [f"if it holds back {most}{left}"]
    if session.ends_at is not None:
        parts.insert(0, f"if it is not used within {drawing.ago((session.ends_at - now).total_seconds())}")
    if next_to_go:
        parts.append("at once if another one is asked for")
    return "; ".join(parts)
