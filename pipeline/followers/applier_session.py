"""Finds out what a follower's applier is doing or waiting for, as the Postgres server of the follower sees it."""

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
"""The `application_name` of an applier's sessions at the follower."""
_SAMPLES, _PAUSE = 3, 0.05
"""The number of samples, and the seconds between two of them; the activity of most samples counts."""

Doing = Literal["lock", "computing", "waiting", "idle", "absent", "unknown"]


@dataclass(frozen=True)
class ApplierActivity:
    """An applier's activity at the follower.

    `doing`: `lock`: the session waits for a lock of the process `blocker`, whose transaction is `blocker_seconds` old;
    `computing`; `waiting`: for the wait event in `text`; `idle`: the follower's server waits for the applier; `absent`:
    the applier has no session; `unknown`: `text` says why.
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


def observe(name: str, dsn: str, seconds: float) -> ApplierActivity:
    """Ask the follower what its applier does; `seconds`: how long the follower may take to answer."""
    try:
        with connecting.answering(name, dsn, seconds, program="pipeline status") as follower:
            return sample(follower)
    except DatabaseUnavailableError as error:
        return ApplierActivity("unknown", str(error))
    except psycopg.Error as error:
        return ApplierActivity("unknown", connections.one_line(error))


def sample(follower: Connection) -> ApplierActivity:
    """Return the most frequent activity of a few samples in this session of the follower, or the first lock wait."""
    found = list[ApplierActivity]()
    for number in range(_SAMPLES):
        if number:
            time.sleep(_PAUSE)
        session = queries.one(follower, _Session, statement("followers", "applier_session"), {"program": PROGRAM})
        found.append(_activity(session))
        if found[-1].doing == "lock":
            return found[-1]
    return max(found, key=lambda each: sum(other.doing == each.doing for other in found))


def _activity(session: _Session | None) -> ApplierActivity:
    if session is None:
        return ApplierActivity("absent")
    if session.blocker is not None:
        state = f", {session.blocker_state}" if session.blocker_state not in (None, "active") else ""
        who = f"pid {session.blocker} ({session.blocked_by or 'unnamed'}{state})"
        return ApplierActivity("lock", who, session.blocker, session.blocker_seconds)
    if session.state != "active" or session.wait_event_type == "Client":
        return ApplierActivity("idle")
    if session.wait_event is None:
        return ApplierActivity("computing")
    return ApplierActivity("waiting", f"{session.wait_event_type} {session.wait_event}")
