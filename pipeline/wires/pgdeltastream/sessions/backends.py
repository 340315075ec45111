"""Backends of sessions at the source: walsenders that export or stream, and connections that read pages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.config.settings import Config
from pipeline.errors import SlotInUseError
from pipeline.postgres import queries, reading_session
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wires.pgdeltastream.sessions.store import StoredSession, walsender_name

_NAME = "pipeline sessions"
END_MILLISECONDS = 5_000
"""How long a backend may take to end."""


@dataclass(frozen=True)
class SessionBackend:
    """A backend of a session at the source. `name`: `walsender_name` or `page_name` of the session's slot."""

    pid: int
    name: str
    walsender: bool


def page_name(slot: str) -> str:
    """Return the application_name of connections that read a page of a session's snapshot."""
    return f"pipeline page {slot}"


def find(source: Connection, sessions: Iterable[StoredSession]) -> list[SessionBackend]:
    """Return the backends of these sessions that belong to this user."""
    names = [name(session.slot) for session in sessions for name in (walsender_name, page_name)]
    return queries.rows(
        source, SessionBackend, statement("wires.pgdeltastream.sessions", "session_backends"), {"names": names}
    )


def end_exporting(source: Connection, session: StoredSession) -> None:
    """End the walsender that holds the session's snapshot, but not the one that streams the slot."""
    names = {"name": walsender_name(session.slot), "slot": session.slot}
    source.execute(statement("wires.pgdeltastream.sessions", "end_exporting"), names)


def pages(config: Config, source: Connection, sessions: Iterable[StoredSession]) -> set[str]:
    """Return the names of pages that are being read, by the reading role."""
    with reading_session.catalog_session(config, source, name=_NAME) as reading:
        return {backend.name for backend in find(reading, sessions) if not backend.walsender}


def end(config: Config, source: Connection, session: StoredSession) -> None:
    """End all backends of a session, and wait for their end. Raises SlotInUseError if one does not end.

    A role may end its own backends only: pages are ended by the reading role.
    """
    _end(source, session)
    with reading_session.catalog_session(config, source, name=_NAME) as reading:
        if reading is not source:
            _end(reading, session)


def _end(source: Connection, session: StoredSession) -> None:
    for backend in find(source, [session]):
        source.execute("select pg_catalog.pg_terminate_backend(%s, %s)", (backend.pid, END_MILLISECONDS))
    if left := find(source, [session]):  # pg_terminate_backend returns false, too, for a backend that no longer exists
        raise SlotInUseError(f'pid {left[0].pid} of session "{session.slot}" does not end; terminate it')
