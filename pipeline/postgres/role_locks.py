"""The server that holds each role: a session-level advisory lock per role, and a row with its holder's state."""

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
"""Seconds within which a holder must use its session again; without a use for FROZEN_SECONDS it counts as frozen."""
WORKING = ("replication", "snapshot", "shuffle", "schedule")
"""The roles that write to the pipeline database."""
_RETRY_SECONDS, _LOG_SECONDS = 0.5, 60.0
FROZEN_SECONDS = 6.0
"""Seconds that Postgres may wait for a holder's next statement; after that another server may take the role."""

STAGED_ROWS = "2"
"""The name of the form of staged rows that this version writes and reads. Another form gets another name."""

State = Literal["starting", "running", "waiting", "stopped", "failed"]


@dataclass(frozen=True)
class RoleState:
    """The state of a role as its holder last reported it. `held`: True if a session holds its lock now.

    If no session holds the lock, the state is "stopped" or "failed" if the last holder reported that, otherwise
    "not running".
    """

    role: str
    server: str
    pid: int
    state: str
    reason: str | None
    since: datetime
    held: bool


def try_acquire(connection: Connection, role: str) -> bool:
    """Acquire the role until this session ends; False if another session holds it.

    A frozen holder loses the role; its process was suspended, or it was cut off from the network. Its session is ended,
    so that it can write nothing in it when it wakes up. The caller must use its session every BEAT_SECONDS from then
    on.
    """
    return _lock(connection, role) or (_evict_frozen(connection, role) and _lock(connection, role))


def _lock(connection: Connection, role: str) -> bool:
    return bool(queries.value(connection, statement("postgres", "lock_role"), {"role": role, "rows": STAGED_ROWS}))


def _evict_frozen(connection: Connection, role: str) -> bool:
    try:
        ended = connection.execute(
            statement("postgres", "evict_frozen"), {"role": role, "seconds": FROZEN_SECONDS}
        ).fetchall()
    except psycopg.errors.InsufficientPrivilege as error:  # this user may not end sessions of the holder's user
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
def hold_lock(connection: Connection, name: str, seconds: float) -> Iterator[None]:
    """Hold the lock of this name inside of the block.

    Waits at most `seconds`, then raises DatabaseUnavailableError. The holder loses the lock, like that of a role, if it
    leaves its session unused for FROZEN_SECONDS while another session waits. One database may be the source and the
    pipeline database, so their locks must have different names.
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
def keep_alive(connection: Connection, lost: Callable[[psycopg.Error], None]) -> Iterator[None]:
    """Use a session that holds a role again and again, so that it does not count as frozen; call `lost` on an error.

    A thread does so, in parallel with the block, which may use the session, too.
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


def join_reasons(reasons: Mapping[str, str]) -> str | None:
    """Return the reasons of parts that failed, by name, as one reason with a line for each; None if there are none."""
    return "\n".join(f"{name}: {reason}" for name, reason in sorted(reasons.items())) or None


def failed_schedules(held: Iterable[RoleState]) -> dict[str, str]:
    """Return the schedules whose last run failed, with the reasons that the schedule role has reported."""
    texts = [role.reason for role in held if role.role == "schedule" and role.held and role.state == "running"]
    lines = [line.partition(": ") for text in texts if text for line in text.split("\n")]
    return {name: reason for name, _, reason in lines}


def server_of(connection: Connection, role: str) -> str | None:
    """Return the server that holds the role now; None if no server does."""
    state = states(connection).get(role)
    return state.server if state and state.held else None


def server_starts(connection: Connection, role: str) -> bool:
    """True if a server runs that will hold the role: it boots, or the role is just starting there."""
    return bool(queries.value(connection, statement("postgres", "server_starts"), {"role": role}))


def older_holder(connection: Connection, role: str) -> str | None:
    """Return the server that holds the role, if its version does not know the form of this version's staged rows."""
    found: str | None = queries.value(
        connection, statement("postgres", "older_holder"), {"role": role, "rows": STAGED_ROWS}
    )
    return found


@contextmanager
def keep_servers_out(connection: Connection, reason: str) -> Iterator[None]:
    """Wait until no server works on the pipeline database, and let none begin. The log states `reason`."""
    held: list[str] = []
    try:
        for role in WORKING:
            logged_at = float("-inf")
            while not try_acquire(connection, role):
                if time.monotonic() - logged_at > _LOG_SECONDS:
                    server, logged_at = server_of(connection, role) or "another server", time.monotonic()
                    action = {"action": "migration.waiting"}
                    logger.warning("waiting for the end of %s (%s): %s", server, role, reason, extra=action)
                time.sleep(_RETRY_SECONDS)
            held.append(role)
        yield
    finally:
        for role in held:
            connection.execute(statement("postgres", "unlock_role"), {"role": role})


def states(connection: Connection) -> dict[str, RoleState]:
    """Return the state of each role that a server ever held, by name."""
    found = queries.rows(connection, RoleState, statement("postgres", "role_states"))
    return {row.role: _with_end(row) for row in found}


def _with_end(found: RoleState) -> RoleState:
    """Correct the state of a role that no session holds: a holder that was killed did not report its end."""
    return found if found.held or found.state in ("stopped", "failed") else replace(found, state="not running")
