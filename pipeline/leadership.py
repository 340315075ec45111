"""Which of several servers on one pipeline database leads: the one whose session holds the lock; others stand by."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable
from types import TracebackType

import psycopg

from pipeline import db
from pipeline.catalog import roles
from pipeline.db import Connection
from pipeline.errors import Unavailable

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT = 3
"""Seconds; asking must not keep the server from hearing its signals for long."""


class Leadership:
    """Call it to learn whether this server leads now; it takes the lead when nobody has it.

    A lock of a session: when that ends, so does the lead, and the roles, whose own locks are what fences them, are to
    be stopped before another server's can begin.
    """

    def __init__(self, dsn: str, name: str, revive: Callable[[], None]) -> None:
        """`name`: servers of the same name compete. `revive` is called when the database does not answer."""
        self._dsn = dsn
        self._name = name
        self._revive = revive
        self._connection: Connection | None = None
        self._leads = False
        self._told = False

    def __enter__(self) -> Leadership:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()

    def __call__(self) -> bool:
        """Never raises; without an answer from the database this server does not lead."""
        try:
            if self._connection is None:
                self._connection = db.connect(
                    self._dsn, "pipeline database", name="pipeline serve", connect_timeout=CONNECT_TIMEOUT
                )
            self._ask(self._connection)
        except (Unavailable, psycopg.Error) as error:
            if self._leads:
                logger.warning("lead lost: %s", db.one_line(error), extra={"action": "serve.lead_lost"})
            if self._connection is not None:
                self._connection.close()
            self._connection, self._leads = None, False
            self._revive()
        return self._leads

    def _ask(self, connection: Connection) -> None:
        if self._leads:
            connection.execute("select 1")
            return
        self._leads = roles.try_acquire(connection, self._name)
        if self._leads:
            roles.report(connection, self._name, own_name(), os.getpid(), "running")
            logger.info("leading", extra={"action": "serve.leading"})
        elif not self._told:
            holder = roles.states(connection).get(self._name)
            who = holder.server if holder else "another server"
            logger.info("standing by: %s leads", who, extra={"action": "serve.standby"})
        self._told = True


def own_name() -> str:
    """This server among others: host and the supervisor's pid. For the supervisor itself."""
    return f"{platform.node()}:{os.getpid()}"
