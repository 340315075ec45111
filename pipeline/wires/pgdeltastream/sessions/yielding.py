"""Which session makes room for a new one, and until when the others are kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from pipeline.wires.pgdeltastream.sessions.store import Session

UNUSED_SECONDS = 10.0
"""A session that no request has used makes room for its own address so long after it was made."""
READ_SECONDS = 60.0
"""A session whose snapshot was read, and that was never streamed, makes room for its own address after so long."""
AWAY_SECONDS = 300.0
"""Every session makes room after so long without use: a client that is away for a deploy keeps its session."""


def first(live: Sequence[Session], in_use: Collection[int], address: str | None, now: datetime) -> Session | None:
    """Return the session that makes room for a client of this address, or None. `in_use`: ids of sessions.

    A session that was never used goes before one that was read, and that before one that was streamed. Of several, the
    one goes that was unused for longest.
    """
    able = [each for each in live if each.id not in in_use and each.state == "ready" and now >= _end(each, address)]
    return min(able, key=lambda each: (_seconds(each, address), each.used_at), default=None)


def reason(session: Session, address: str | None) -> str:
    """Return why the session has ended, for its client."""
    return f"it made room for another session: no client had used it for {_seconds(session, address):g} s"


def kept(live: Sequence[Session], in_use: Collection[int], address: str | None) -> str:
    """Return until when each session is kept, for a client of this address."""
    return ", ".join(f"{each.slot} {_kept(each, in_use, address)}" for each in live)


def _kept(session: Session, in_use: Collection[int], address: str | None) -> str:
    if session.state != "ready":
        return "is being made"
    if session.id in in_use:
        return "is in use"
    return f"is kept until {_end(session, address):%Y-%m-%d %H:%M:%S %Z}"


def _end(session: Session, address: str | None) -> datetime:
    return session.used_at + timedelta(seconds=_seconds(session, address))


def _seconds(session: Session, address: str | None) -> float:
    if address is None or session.address != address or session.used_for == "stream":
        return AWAY_SECONDS
    return UNUSED_SECONDS if session.used_for is None else READ_SECONDS
