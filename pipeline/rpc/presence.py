"""Stores the state of this role for `status`; if several servers run the role, the one that has its lock longest."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.postgres import connections, role_locks
from pipeline.postgres.connections import Connection
from pipeline.postgres.role_locks import State
from pipeline.process import supervised

logger = logging.getLogger(__name__)

ROLE = "grpc"


class RolePresence:
    """Stores the reported state as soon as this server has the role's lock and the database answers."""

    def __init__(self, config: Config, server: str) -> None:
        self._config, self._server = config, server
        self._now: tuple[State, str | None] = ("starting", None)
        self._stored: tuple[State, str | None] | None = None
        self._connection: Connection | None = None
        self._changed = threading.Event()
        self._ended = False

    def report(self, state: State, reason: str | None = None) -> None:
        """Report a state; never waits."""
        self._now = state, reason
        self._changed.set()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Let a thread store the states while the block runs; store "stopped" when it ends."""
        thread = supervised.start_thread("presence", self._keep)
        try:
            yield
        finally:
            self._ended = True
            self.report("stopped")
            thread.join(role_locks.BEAT_SECONDS)

    def _keep(self) -> None:
        while True:
            ended = self._ended
            with suppress(PipelineError):
                try:
                    self._store()
                except psycopg.Error:
                    self._forget()
            if ended:
                self._forget()
                return
            self._changed.wait(role_locks.BEAT_SECONDS)
            self._changed.clear()

    def _store(self) -> None:
        if self._connection is None:
            connection = connections.connect(self._config.database, "pipeline database", name="pipeline grpc role")
            self._connection, self._stored = connection, None
        if self._stored is None and not role_locks.try_acquire(self._connection, ROLE):
            return
        now = self._now
        if now == self._stored:
            self._connection.execute("select 1")  # a holder that is silent counts as frozen
            return
        role_locks.report(self._connection, ROLE, self._server, os.getpid(), *now)
        self._stored = now

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._stored = None
