"""Keeps a server from starting while a repair changes what each of its roles relies on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.errors import PipelineError
from pipeline.postgres import role_locks
from pipeline.postgres.connections import Connection

ROLES = ("serve", "replication", "snapshot", "shuffle")
"""The roles that a running server holds; all must be free."""


@contextmanager
def held(pipeline: Connection) -> Iterator[None]:
    """Hold all roles, so that no server starts; with regular beats, or a standby would take us for frozen."""
    for role in ROLES:
        if not role_locks.try_acquire(pipeline, role):
            holder = role_locks.states(pipeline).get(role)
            who = f"{holder.server}, pid {holder.pid}" if holder else "another server"
            raise PipelineError(f"a server is running ({role} is held by {who}); stop it first")
    with role_locks.beating(pipeline, lambda _: None):  # other uses of the connection notice if it breaks
        yield
