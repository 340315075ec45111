"""What a follower's applier waits for, as its follower's server sees it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import psycopg

from pipeline.errors import DatabaseUnavailableError
from pipeline.followers import connecting
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

PROGRAM = "pipeline applier"
"""What an applier's sessions are called."""
_LOOKS, _PAUSE = 3, 0.05
"""So many looks, so many seconds apart: what it does in most of them it does."""

Doing = Literal["lock", "computing", "waiting", "idle", "absent", "unknown"]


@dataclass(frozen=True)
class Applier:
    """`doing`: it waits for a `lock` of `blocker`; it is `computing` there, or `waiting` there for what `text` names.

    `idle`: the follower's server waits for the applier; `absent`: it has no session; `unknown`: `text` says why.
    """

    doing: Doing
    text: str = ""
    blocker: int | None = None
    blocker_seconds: float | None = None


@dataclass(frozen=True)
class _Session:
    pid: int
    state: str
    wait_event_type: str | None
    wait_event: str | None
    blocker: int | None
    blocked_by: str | None
    blocker_state: str | None
    blocker_seconds: float | None


def look(name: str, dsn: str, seconds: float) -> Applier:
    """Asks the follower, which has so long to answer."""
    try:
        with connecting.answering(name, dsn, seconds, program="pipeline status") as follower:
            return seen(follower)
    except DatabaseUnavailableError as error:
        return Applier("unknown", str(error))
    except psycopg.Error as error:
        return Applier("unknown", connections.one_line(error))


def seen(follower: Connection) -> Applier:
    """In a session of the follower."""
    found = list[Applier]()
    for number in range(_LOOKS):
        if number:
            time.sleep(_PAUSE)
        session = queries.one(follower, _Session, statement("followers", "applier_session"), {"program": PROGRAM})
        found.append(_told(session))
        if found[-1].doing == "lock":
            return found[-1]
    return max(found, key=lambda each: sum(other.doing == each.doing for other in found))


def _told(session: _Session | None) -> Applier:
    if session is None:
        return Applier("absent")
    if session.blocker is not None:
        state = f", {session.blocker_state}" if session.blocker_state not in (None, "active") else ""
        who = f"pid {session.blocker} ({session.blocked_by or 'unnamed'}{state})"
        return Applier("lock", who, session.blocker, session.blocker_seconds)
    if session.state != "active" or session.wait_event_type == "Client":
        return Applier("idle")
    if session.wait_event is None:
        return Applier("computing")
    return Applier("waiting", f"{session.wait_event_type} {session.wait_event}")
