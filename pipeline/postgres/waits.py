"""What our sessions wait for: named while a start waits, and ended when the process is asked to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import psycopg

from pipeline.errors import PipelineError
from pipeline.postgres import connections, open_sessions, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.process import supervised
from pipeline.process.signals import StopSignal

logger = logging.getLogger(__name__)
T = TypeVar("T")

NAMED_AFTER = 2.0
"""Seconds after which a wait is named."""
ENDED_AFTER = 0.5
"""Seconds that a session may wait for a lock while the process stops."""
_EVERY, _LOOK_SECONDS, _LOGGED_EVERY = 0.25, 3.0, 60.0


@dataclass(frozen=True)
class LockWait:
    """A session that waits for a lock, and one that holds it. None: there is no such thing, or we may not see it.

    `seconds`: how long its statement has run. `relation`: None if it waits for the end of a transaction.
    """

    pid: int
    application: str
    seconds: float
    relation: str | None
    holder: int | None
    username: str | None
    program: str | None
    state: str | None
    prepared: str | None
    held_seconds: float | None

    @property
    def held_by(self) -> str:
        """The holder, for people."""
        age = "" if self.held_seconds is None else f"open for {timedelta(seconds=int(self.held_seconds))}"
        if self.prepared is not None:
            facts = ", ".join(filter(None, (f"of {self.username or 'another user'}", age)))
            return f'the prepared transaction "{self.prepared}" ({facts})'
        if self.holder is None:
            return "a transaction that has ended by now"
        facts = ", ".join(filter(None, (self.username or "another user", self.program, self.state, age)))
        return f"pid {self.holder} ({facts})"


def look(connection: Connection, pids: Sequence[int]) -> list[LockWait]:
    """Return what these sessions wait for, one entry for each holder; empty if they wait for no lock."""
    return queries.rows(connection, LockWait, statement("postgres", "waits"), {"pids": list(pids)})


def describe(found: Sequence[LockWait]) -> str:
    """Describe what one session waits for: since when, and who holds it."""
    relations = {wait.relation for wait in found if wait.relation}
    what = f"a lock on {', '.join(sorted(relations))}, held by" if relations else "the end of"
    seconds = max(wait.seconds for wait in found)
    return f"has waited {seconds:.0f} s for {what} {' and '.join(dict.fromkeys(wait.held_by for wait in found))}"


@contextmanager
def named(subject: Callable[[str], str], report: Callable[[str], object] = lambda _: None) -> Iterator[None]:
    """While the block runs, say what sessions of this process wait for, once they have waited for NAMED_AFTER.

    `subject`: what a session with this application_name does. `report` gets the sentence, from a thread, as long as
    the session waits; the log has it once a minute.
    """
    done = threading.Event()
    thread = supervised.start_thread("waits", partial(_name, done, subject, report))
    try:
        yield
    finally:
        done.set()
        thread.join()


def _name(done: threading.Event, subject: Callable[[str], str], report: Callable[[str], object]) -> None:
    logged: tuple[str, float] = "", 0.0
    while not done.wait(NAMED_AFTER / 4):
        waiting = [wait for found in _looks(look) for wait in found if wait.seconds >= NAMED_AFTER]
        if not waiting or done.is_set():
            continue
        first = [wait for wait in waiting if wait.pid == waiting[0].pid]
        text = f"{subject(first[0].application)} {describe(first)}"
        report(text)
        holders = ", ".join(str(wait.holder or wait.prepared) for wait in first)
        if logged[0] != holders or time.monotonic() - logged[1] > _LOGGED_EVERY:
            logger.warning("%s", text, extra={"action": "session.waits"})
            logged = holders, time.monotonic()


def end_at_stop(stop: StopSignal) -> None:
    """Once the process is asked to stop, end its sessions that only wait for a lock; those that work go on.

    What runs a statement there gets the error of a lost connection, from which it recovers as after a crash.
    """
    supervised.start_thread("ending waits", partial(_end_waiting, stop))


def _end_waiting(stop: StopSignal) -> None:
    while not stop.wait(3600.0):
        pass
    while True:
        for ended in _looks(_end):
            for pid, _ in ended:
                logger.info("ended our session with pid %s, which only waited", pid, extra={"action": "session.ended"})
        time.sleep(_EVERY)


def _end(connection: Connection, pids: Sequence[int]) -> list[tuple[Any, ...]]:
    values = {"pids": list(pids), "seconds": ENDED_AFTER}
    return connection.execute(statement("postgres", "end_waiting"), values).fetchall()


def _looks(ask: Callable[[Connection, Sequence[int]], T]) -> Iterator[T]:
    """Ask each database at which sessions of this process run statements now; skip those that do not answer."""
    for dsn, pids in open_sessions.active().items():
        with (
            suppress(PipelineError, psycopg.Error),
            connections.answering(dsn, "database", _LOOK_SECONDS, name="pipeline waits") as connection,
        ):
            yield ask(connection, pids)
