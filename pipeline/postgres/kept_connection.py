"""Connections for checks: opened for one check, or kept open between checks until none comes for a minute."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

import psycopg

from pipeline.config.settings import Config
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection

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

    def __init__(self, dsn: str, what: str, *, name: str) -> None:
        self._dsn, self._what, self._name = dsn, what, name
        self._lock = threading.Lock()
        self._kept: Connection | None = None
        self._expiry: threading.Timer | None = None
        self._closed = False

    @contextmanager
    def answering(self, seconds: float) -> Iterator[Connection]:
        """Yield the connection for one check. Time is limited as by `connections.answering`, with the same error."""
        connection = self._take(seconds) or connections.connect_promptly(
            self._dsn, self._what, name=self._name, seconds=max(2.0, seconds)
        )
        try:
            with connections.limited(connection, self._dsn, self._what, seconds):
                yield connection
        except BaseException:
            connection.close()
            raise
        self._keep(connection)

    def close(self) -> None:
        """Close the connection, now or at the end of the check that uses it."""
        self._closed = True
        self._expire()

    def _expire(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, None
            if self._expiry is not None:
                self._expiry.cancel()
        if kept is not None:
            kept.close()

    def _take(self, seconds: float) -> Connection | None:
        """Return the open connection; None if there is none, or if the database has ended it."""
        with self._lock:
            if self._expiry is not None:
                self._expiry.cancel()
            kept, self._kept = self._kept, None
        if kept is None:
            return None
        try:
            with connections.limited(kept, self._dsn, self._what, seconds):
                kept.execute("")
        except psycopg.Error:
            kept.close()
            return None
        except BaseException:
            kept.close()
            raise
        return kept

    def _keep(self, connection: Connection) -> None:
        with self._lock:
            self._kept = connection
            self._expiry = threading.Timer(KEPT_SECONDS, self._expire)
            self._expiry.daemon = True
            self._expiry.start()
        if self._closed:
            self._expire()
