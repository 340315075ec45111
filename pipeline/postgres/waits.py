"""The locks that our sessions wait for: reported while a start waits, and given up when the process must stop."""

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

REPORTED_AFTER = 2.0
"""Seconds after which a wait is reported."""
ENDED_AFTER = 0.5
"""Seconds that a session may wait for a lock while the process stops."""
_END_EVERY, _CHECK_SECONDS, _LOG_EVERY = 0.25, 3.0, 60.0


@dataclass(frozen=True)
class LockWait:
    """A session that waits for a lock, and one that holds it. A field is None if it has no value, or we may not see it.

    `seconds`: the seconds that its statement has run. `relation`: None if it waits for the end of a transaction.
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
        """The holder, as text for a message."""
        age = "" if self.held_seconds is None else f"open for {timedelta(seconds=int(self.held_seconds))}"
        if self.prepared is not None:
            facts = ", ".join(filter(None, (f"of {self.username or 'another user'}", age)))
            return f'the prepared transaction "{self.prepared}" ({facts})'
        if self.holder is None:
            return "a transaction that has ended by now"
        facts = ", ".join(filter(None, (self.username or "another user", self.program, self.state, age)))
        return f"pid {self.holder} ({facts})"


def find_waits(connection: Connection, pids: Sequence[int]) -> list[LockWait]:
    """Return the locks that these sessions wait for, one entry for each holder; empty if they wait for no lock."""
    return queries.rows(connection, LockWait, statement("postgres", "waits"), {"pids": list(pids)})


def describe(found: Sequence[LockWait]) -> str:
    """Describe the wait of one session: how long it has waited, for what, and who holds that."""
    relations = {wait.relation for wait in found if wait.relation}
    what = f"a lock on {', '.join(sorted(relations))}, held by" if relations else "the end of"
    seconds = max(wait.seconds for wait in found)
    return f"has waited {seconds:.0f} s for {what} {' and '.join(dict.fromkeys(wait.held_by for wait in found))}"


@contextmanager
def report_waits(subject: Callable[[str], str], report: Callable[[str], object] = lambda _: None) -> Iterator[None]:
    """Report, while the block runs, what sessions of this process wait for, once they have waited for REPORTED_AFTER.

    `subject` describes what a session with this application_name does. A thread passes the sentence to `report` for as
    long as the session waits, and logs it once a minute.
    """
    done = threading.Event()
    thread = supervised.start_thread("waits", partial(_report, done, subject, report))
    try:
        yield
    finally:
        done.set()
        thread.join()


def _report(done: threading.Event, subject: Callable[[str], str], report: Callable[[str], object]) -> None:
    logged: tuple[str, float] = "", 0.0
    while not done.wait(REPORTED_AFTER / 4):
        waiting = [wait for found in _ask_databases(find_waits) for wait in found if wait.seconds >= REPORTED_AFTER]
        if not waiting or done.is_set():
            continue
        first = [wait for wait in waiting if wait.pid == waiting[0].pid]
        text = f"{subject(first[0].application)} {describe(first)}"
        report(text)
        holders = ", ".join(str(wait.holder or wait.prepared) for wait in first)
        if logged[0] != holders or time.monotonic() - logged[1] > _LOG_EVERY:
            logger.warning("%s", text, extra={"action": "session.waits"})
            logged = holders, time.monotonic()


def end_at_stop(stop: StopSignal) -> None:
    """End sessions of the process that only wait for a lock, once it is asked to stop. Sessions that work continue.

    The code that runs a statement in an ended session gets the error of a lost connection, and recovers as after a
    crash.
    """
    supervised.start_thread("ending waits", partial(_end_waiting, stop))


def _end_waiting(stop: StopSignal) -> None:
    while not stop.wait(3600.0):
        pass
    while True:
        for ended in _ask_databases(_end):
            for pid, _ in ended:
                logger.info("ended our session with pid %s, which only waited", pid, extra={"action": "session.ended"})
        time.sleep(_END_EVERY)


def _end(connection: Connection, pids: Sequence[int]) -> list[tuple[Any, ...]]:
    values = {"pids": list(pids), "seconds": ENDED_AFTER}
    return connection.execute(statement("postgres", "end_waiting"), values).fetchall()


def _ask_databases(ask: Callable[[Connection, Sequence[int]], T]) -> Iterator[T]:
    """Ask each database in which sessions of this process run statements now; skip databases that do not answer."""
    for dsn, pids in open_sessions.active().items():
        with (
            suppress(PipelineError, psycopg.Error),
            connections.answering(dsn, "database", _CHECK_SECONDS, name="pipeline waits") as connection,
        ):
            yield ask(connection, pids)
