"""Sessions for checks that run every few seconds: opening a session costs more than most checks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psycopg

from pipeline.postgres import connections
from pipeline.postgres.connections import Connection

LONGEST = 60.0
"""Seconds after which new sessions are opened: a DSN may lead to another server now, though the old one answers."""


class KeptSessions:
    """Sessions that stay open from one check to the next. Close the object when no check follows.

    `connect` opens new sessions after LONGEST, after a check that failed, or if a session was lost. Only one check at a
    time may use them.
    """

    def __init__(
        self, connect: Callable[[], Sequence[Connection]], seconds: float = connections.CONNECT_TIMEOUT
    ) -> None:
        """`seconds`: the time in which an open session must answer before it is lent; else new ones are opened."""
        self._connect, self._seconds = connect, seconds
        self._open: Sequence[Connection] = ()
        self._until = 0.0

    @contextmanager
    def lend(self) -> Iterator[Sequence[Connection]]:
        """Yield the sessions that `connect` returns, in their order. Raises the errors of `connect`."""
        if (
            not self._open
            or time.monotonic() >= self._until
            or not all(_answers(each, self._seconds) for each in self._open)
        ):
            self.close()
            self._open = self._connect()
            self._until = time.monotonic() + LONGEST
        try:
            yield self._open
        except BaseException:  # the check may have left locks or settings in the sessions
            self.close()
            raise

    def close(self) -> None:
        """End the sessions."""
        for connection in self._open:
            connection.close()
        self._open = ()


def _answers(connection: Connection, seconds: float) -> bool:
    """True if the session answers in time. A frozen server's does not."""
    timer = threading.Timer(seconds, connections.hang_up, (connection,))
    timer.daemon = True
    timer.start()
    try:
        connection.execute("select 1")
    except psycopg.Error:
        return False
    finally:
        timer.cancel()
    return True
