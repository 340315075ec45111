"""Whether a server does its work, as `/readyz` and health checks ask; answers in time, whatever hangs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import psycopg

from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.operate import status
from pipeline.postgres import connections, role_locks
from pipeline.postgres.role_locks import RoleState

Role = Literal["snapshot", "replication", "shuffle", "schedule", "followers", "api"]
LOOK_SECONDS = 2.0
"""How long a database has to accept a connection, and then to answer what health asks."""


def why_not(config: Config, server: str, role: Role | None = None) -> list[str]:
    """Why this server is not ready, or that role of any server; empty when it is.

    The api role is ready when it can read the log: also that of a server that stands by.
    """
    asks = connections.answering(config.database, "pipeline database", LOOK_SECONDS, name="pipeline readiness")
    try:
        with asks as connection:
            held = list(role_locks.states(connection).values())
            if role is not None:
                return [] if role == "api" else status.role_reasons(held, (role,))
            reasons = [*elsewhere(held, server), *status.why_not(config, connection, held)]
        # What the worker does not notice for a while yet: a source that is frozen.
        return reasons or _silent_source(config)
    except PipelineError as error:
        return [str(error)]
    except psycopg.errors.UndefinedTable:
        return ["the pipeline database is not migrated"]


def elsewhere(held: Sequence[RoleState], server: str) -> list[str]:
    """Why a server that stands by is not ready."""
    return [
        f"standing by: {role.role} is held by {role.server} (pid {role.pid})"
        for role in held
        if role.held and role.server != server and role.role in ("replication", "shuffle")
    ]


def _silent_source(config: Config) -> list[str]:
    with connections.answering(config.source, "source", LOOK_SECONDS, name="pipeline readiness"):
        return []
