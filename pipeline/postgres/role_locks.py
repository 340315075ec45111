"""Which server holds each role: a session-level advisory lock per role, and a row with its holder's state."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import psycopg

from pipeline.errors import DatabaseUnavailableError
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.process import supervised

logger = logging.getLogger(__name__)

BEAT_SECONDS = 2.0
"""A holder uses its session at least so often; one that does not counts as frozen after FROZEN_SECONDS."""
WORKING = ("replication", "snapshot", "shuffle", "schedule")
"""The roles that write to the pipeline database."""
_ASK_EVERY, _SAY_EVERY = 0.5, 60.0
FROZEN_SECONDS = 6.0
"""How long Postgres may wait for a holder's next statement before another server may take the role."""

STAGED_ROWS = "2"
"""The form of staged rows that this version writes and reads. Another form gets another name."""

State = Literal["starting", "running", "waiting", "stopped", "failed"]


@dataclass(frozen=True)
class RoleState:
    """The state of a role as its holder last reported it. `held`: whether a session holds its lock now.

    Of one that nobody holds any more, only how it ended counts: "stopped" or "failed", else it is "not running".
    """

    role: str
    server: str
    pid: int
    state: str
    reason: str | None
    since: datetime
    held: bool


def try_acquire(connection: Connection, role: str) -> bool:
    """Take the role until this session ends; False when another session holds it.

    A holder that is frozen (its process is stopped, or it was cut off from the network) loses it: its session is ended,
    so it can write nothing on it when it wakes up. The caller must use its session every BEAT_SECONDS from then on.
    """
    return _lock(connection, role) or (_evict_frozen(connection, role) and _lock(connection, role))


def _lock(connection: Connection, role: str) -> bool:
    return bool(queries.value(connection, statement("postgres", "lock_role"), {"role": role, "rows": STAGED_ROWS}))


def _evict_frozen(connection: Connection, role: str) -> bool:
    try:
        ended = connection.execute(
            statement("postgres", "evict_frozen"), {"role": role, "seconds": FROZEN_SECONDS}
        ).fetchall()
    except psycopg.errors.InsufficientPrivilege as error:  # a session of a user whose sessions this one may not end
        logger.warning("%s is held by a frozen session: %s", role, error, extra={"action": "role.frozen"})
        return False
    for pid, gone in ended:
        logger.warning(
            "%s was held by a frozen session (pid %s), which %s",
            role,
            pid,
            "was ended" if gone else "does not end",
            extra={"action": "role.evicted"},
        )
    return bool(ended)


@contextmanager
def held(connection: Connection, name: str, seconds: float) -> Iterator[None]:
    """Hold the lock of this name inside of the block.

    Waits so many seconds at most, and then raises DatabaseUnavailableError. As a role's, it is lost by a holder that is
    frozen, or that leaves its session unused for FROZEN_SECONDS while another one waits. Where the databases are one,
    names at the source and at the pipeline database must differ.
    """
    deadline = time.monotonic() + seconds
    while not try_acquire(connection, name):
        if time.monotonic() > deadline:
            raise DatabaseUnavailableError(f"another session holds the lock on {name} for too long; it is tried again")
        time.sleep(0.05)
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute(statement("postgres", "unlock_role"), {"role": name})


@contextmanager
def beating(connection: Connection, lost: Callable[[psycopg.Error], None]) -> Iterator[None]:
    """Keep using a session that holds a role, so that it does not count as frozen; calls `lost` when that fails.

    From a thread of its own: the session may be used meanwhile.
    """
    done = threading.Event()

    def beat() -> None:
        while not done.wait(BEAT_SECONDS):
            try:
                connection.execute("select 1")
            except psycopg.Error as error:
                if not done.is_set():
                    lost(error)

    supervised.start_thread("beat", beat)
    try:
        yield
    finally:
        done.set()


def report(connection: Connection, role: str, server: str, pid: int, state: State, reason: str | None = None) -> None:
    """Store the role's state. Only its holder may call this."""
    connection.execute(
        statement("postgres", "report_role"),
        {"role": role, "server": server, "pid": pid, "state": state, "reason": reason},
    )


def in_lines(reasons: Mapping[str, str]) -> str | None:
    """Return reasons by the name of what failed as the one reason of a role that runs; None if there are none."""
    return "\n".join(f"{name}: {reason}" for name, reason in sorted(reasons.items())) or None


def failed_schedules(held: Iterable[RoleState]) -> dict[str, str]:
    """Return which schedules failed when they last ran, and why, as the schedule role has reported it."""
    texts = [role.reason for role in held if role.role == "schedule" and role.held and role.state == "running"]
    lines = [line.partition(": ") for text in texts if text for line in text.split("\n")]
    return {name: reason for name, _, reason in lines}


def server_of(connection: Connection, role: str) -> str | None:
    """The server that holds the role now."""
    state = states(connection).get(role)
    return state.server if state and state.held else None


def server_starts(connection: Connection, role: str) -> bool:
    """Return whether a server runs that will hold the role, and may not do so yet: it boots, or the role begins."""
    return bool(queries.value(connection, statement("postgres", "server_starts"), {"role": role}))


def older_holder(connection: Connection, role: str) -> str | None:
    """The server that holds the role now, if it is of a version that does not know this one's staged rows."""
    found: str | None = queries.value(
        connection, statement("postgres", "older_holder"), {"role": role, "rows": STAGED_ROWS}
    )
    return found


@contextmanager
def ended(connection: Connection, reason: str) -> Iterator[None]:
    """Waits until no server works on the pipeline database, and keeps them from it. `reason`: why; it is logged."""
    held: list[str] = []
    try:
        for role in WORKING:
            said_at = float("-inf")
            while not try_acquire(connection, role):
                if time.monotonic() - said_at > _SAY_EVERY:
                    server, said_at = server_of(connection, role) or "another server", time.monotonic()
                    action = {"action": "migration.waiting"}
                    logger.warning("waiting for the end of %s (%s): %s", server, role, reason, extra=action)
                time.sleep(_ASK_EVERY)
            held.append(role)
        yield
    finally:
        for role in held:
            connection.execute(statement("postgres", "unlock_role"), {"role": role})


def states(connection: Connection) -> dict[str, RoleState]:
    """Every role that was ever held, by name."""
    return {row.role: _as_is(row) for row in queries.rows(connection, RoleState, statement("postgres", "role_states"))}


def _as_is(found: RoleState) -> RoleState:
    """Its holder may have been killed, or have had no time to report its end: then it left what it said before."""
    return found if found.held or found.state in ("stopped", "failed") else replace(found, state="not running")
