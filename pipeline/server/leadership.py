"""Elects the leader of several servers on one pipeline database: the one whose session holds the lock."""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections.abc import Callable
from types import TracebackType

import psycopg

from pipeline.errors import DatabaseUnavailableError
from pipeline.postgres import connections, role_locks
from pipeline.postgres.connections import Connection
from pipeline.process import supervised

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT = 3
ASK_SECONDS = 1.0
"""Seconds between two questions to the database; with `role_locks.BEAT_SECONDS` or more, this server looks frozen."""
ANSWER_SECONDS = 5.0
"""Seconds without an answer after which this server stops leading: another may have taken over."""


class LeaderElection:
    """Tells its caller if this server leads now, and takes the lead if no server has it or its holder is frozen.

    The lead is a session's lock and ends with the session. The roles must then be stopped before those of another
    server can begin; each role is fenced by its own lock. A thread asks the database, so that one that hangs keeps
    no caller waiting.
    """

    def __init__(self, dsn: str, name: str, revive: Callable[[], None]) -> None:
        """`name`: servers of the same name compete. `revive` is called when the database does not answer."""
        self._dsn = dsn
        self._name = name
        self._revive = revive
        self._connection: Connection | None = None
        self._leads = False
        self._asked_at: float | None = None
        self._standby_logged = False
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> LeaderElection:
        self._thread = supervised.start_thread("leadership", self._keep_asking)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end.set()
        if self._connection is not None:
            connections.hang_up(self._connection)
        if self._thread is not None:
            self._thread.join(ANSWER_SECONDS)

    def __call__(self) -> bool:
        """Return True if this server leads; False without an answer from the database. Never raises, never waits."""
        asked_at, connection = self._asked_at, self._connection
        if asked_at is None or time.monotonic() - asked_at < ANSWER_SECONDS:
            return self._leads
        if connection is not None:
            connections.hang_up(connection)
        return False

    def _keep_asking(self) -> None:
        while not self._end.is_set():
            self._asked_at = time.monotonic()
            try:
                self._ask(self._connection or self._connect())
            except (DatabaseUnavailableError, psycopg.Error) as error:
                self._lose(connections.one_line(error))
            except Exception as error:
                logger.exception("unexpected error", extra={"action": "serve.lead_failed"})
                self._lose(f"unexpected {type(error).__name__}")
            self._asked_at = None
            self._end.wait(ASK_SECONDS)
        if self._connection is not None:
            self._connection.close()

    def _connect(self) -> Connection:
        self._connection = connections.connect(
            self._dsn, "pipeline database", name="pipeline serve", connect_timeout=CONNECT_TIMEOUT
        )
        return self._connection

    def _lose(self, reason: str) -> None:
        if self._leads:
            logger.warning("lead lost: %s", reason, extra={"action": "serve.lead_lost"})
        if self._connection is not None:
            self._connection.close()
        self._connection, self._leads, self._standby_logged = None, False, False
        if not self._end.is_set():
            self._revive()

    def _ask(self, connection: Connection) -> None:
        if self._leads:
            connection.execute("select 1")
            return
        leads = role_locks.try_acquire(connection, self._name)
        if leads:
            role_locks.report(connection, self._name, own_name(), os.getpid(), "running")
            logger.info("leading", extra={"action": "serve.leading"})
        elif not self._standby_logged:
            holder = role_locks.states(connection).get(self._name)
            who = holder.server if holder else "another server"
            logger.info("standing by: %s leads", who, extra={"action": "serve.standby"})
        self._leads = leads
        self._standby_logged = True


def own_name() -> str:
    """Return the name of this server, unique among others: host and pid. Only for the supervisor's process."""
    return f"{platform.node()}:{os.getpid()}"
