"""Sessions for looks that are taken every few seconds: to make one costs more than most looks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psycopg

from pipeline.postgres import connections
from pipeline.postgres.connections import Connection

LONGEST = 60.0
"""Seconds after which they are made anew: a DSN may lead to another server, though the old one still answers."""


class KeptSessions:
    """Kept from one look to the next, and made anew by `connect` after LONGEST, a look that failed, or a lost one.

    One look at a time. To be closed.
    """

    def __init__(self, connect: Callable[[], Sequence[Connection]]) -> None:
        self._connect = connect
        self._open: Sequence[Connection] = ()
        self._until = 0.0

    @contextmanager
    def look(self) -> Iterator[Sequence[Connection]]:
        """What `connect` returns, in its order. Raises what that raises."""
        if not self._open or time.monotonic() >= self._until or not all(map(_answers, self._open)):
            self.close()
            self._open = self._connect()
            self._until = time.monotonic() + LONGEST
        try:
            yield self._open
        except BaseException:  # it may have left locks or settings
            self.close()
            raise

    def close(self) -> None:
        """End the sessions."""
        for connection in self._open:
            connection.close()
        self._open = ()


def _answers(connection: Connection) -> bool:
    """Whether it does, as soon as a server has to that somebody connects to: a frozen one keeps nobody waiting."""
    timer = threading.Timer(connections.CONNECT_TIMEOUT, connections.hang_up, (connection,))
    timer.daemon = True
    timer.start()
    try:
        connection.execute("select 1")
    except psycopg.Error:
        return False
    finally:
        timer.cancel()
    return True
