"""Sessions for looks that are taken every few seconds: to make one costs more than most looks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psycopg

from pipeline.postgres import connections
from pipeline.postgres.connections import Connection


class KeptSessions:
    """Kept from one look to the next, and made anew by `connect` after a look that failed, or when one is lost.

    One look at a time. To be closed.
    """

    def __init__(self, connect: Callable[[], Sequence[Connection]]) -> None:
        self._connect = connect
        self._open: Sequence[Connection] = ()

    @contextmanager
    def look(self) -> Iterator[Sequence[Connection]]:
        """What `connect` returns, in its order. Raises what that raises."""
        if not (self._open and all(map(_answers, self._open))):
            self.close()
            self._open = self._connect()
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
