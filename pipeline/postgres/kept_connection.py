"""Connections for checks: opened for one check, or kept open between checks until none comes for a minute."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from pipeline.config.settings import Config
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.postgres.kept_sessions import KeptSessions

KEPT_SECONDS = 60.0
"""Seconds after the last check at which the connection closes."""


@dataclass(frozen=True)
class CheckConnections:
    """Opens connections to both databases for checks. A block has the given seconds to use its connection.

    A block that takes longer ends with DatabaseUnavailableError, as that of `connections.answering`.
    """

    pipeline: Callable[[float], AbstractContextManager[Connection]]
    source: Callable[[float], AbstractContextManager[Connection]]

    @classmethod
    def once(cls, config: Config, name: str) -> CheckConnections:
        """Open new connections for each block. `name`: their application name."""
        return cls(
            partial(connections.answering, config.database, "pipeline database", name=name, for_command=True),
            lambda seconds: connections.answering(config.source, "source", seconds, name=name),
        )


class KeptConnection:
    """One connection to a database, opened at the first check. Only one check at a time may use it."""

    def __init__(self, dsn: str, what: str, *, name: str, seconds: float) -> None:
        """`seconds`: the time in which the database must accept a connection, and show that an open one is alive."""
        self._dsn, self._what = dsn, what
        self._sessions = KeptSessions(
            lambda: [connections.connect_promptly(dsn, what, name=name, seconds=seconds)], seconds
        )
        self._in_use = threading.Lock()
        self._expiry: threading.Timer | None = None
        self._closed = False

    @contextmanager
    def answering(self, seconds: float) -> Iterator[Connection]:
        """Yield the connection for one check. Time is limited as by `connections.answering`, with the same error."""
        with self._in_use:
            if self._expiry is not None:
                self._expiry.cancel()
            try:
                with (
                    self._sessions.lend() as (connection,),
                    connections.limited(connection, self._dsn, self._what, seconds),
                ):
                    yield connection
            finally:
                self._expiry = threading.Timer(0 if self._closed else KEPT_SECONDS, self._expire)
                self._expiry.daemon = True
                self._expiry.start()

    def close(self) -> None:
        """Close the connection, now or at the end of the check that uses it."""
        self._closed = True
        self._expire()

    def _expire(self) -> None:
        if self._in_use.acquire(blocking=False):  # else a check uses it, and plans the next expiry
            self._sessions.close()
            self._in_use.release()
