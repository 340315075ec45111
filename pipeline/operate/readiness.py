"""Judge if a server does its work, for `/readyz` and health checks.

The answer comes in time even if a database hangs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import psycopg

from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.followers.operating import status as followers
from pipeline.operate import status
from pipeline.postgres import connections, role_locks
from pipeline.postgres.role_locks import RoleState

Role = Literal["snapshot", "replication", "shuffle", "schedule", "followers", "api"]
CHECK_SECONDS = 2.0
"""Seconds that a database has to accept a connection, and then again to answer a query."""


@dataclass(frozen=True)
class ReadinessReport:
    """The readiness of a server or role. `reasons`: why it is not ready; empty if it is.

    `followers`: what followers lack, one line each. `schedules`: the schedules whose last run failed, and why, one line
    each. Neither makes a server unready.
    """

    reasons: list[str]
    followers: list[str] = field(default_factory=list)
    schedules: list[str] = field(default_factory=list)


def check_readiness(config: Config, server: str, role: Role | None = None) -> ReadinessReport:
    """Judge if this server is ready, or the given role on whichever server runs it.

    The api role is ready if it can read the log, also on a server that stands by.
    """
    asks = connections.answering(config.database, "pipeline database", CHECK_SECONDS, name="pipeline readiness")
    try:
        with asks as connection:
            held = list(role_locks.states(connection).values())
            failed = [f"{name}: {why}" for name, why in role_locks.failed_schedules(held).items()]
            if role is not None and role != "followers":
                reasons = [] if role == "api" else status.role_reasons(held, (role,))
                return ReadinessReport(reasons, schedules=failed if role == "schedule" else [])
            lacking = [
                f'follower "{each.name}": {each.lacks}' for each in followers.list_followers(connection) if each.lacks
            ]
            if role is not None:
                return ReadinessReport(status.role_reasons(held, (role,)), lacking)
            reasons = [*elsewhere(held, server), *status.why_not(config, connection, held)]
        # The worker does not notice a frozen source for a while.
        return ReadinessReport(reasons or _silent_source(config), lacking, failed)
    except PipelineError as error:
        return ReadinessReport([str(error)])
    except psycopg.errors.UndefinedTable:
        return ReadinessReport(["the pipeline database is not migrated"])


def elsewhere(held: Sequence[RoleState], server: str) -> list[str]:
    """Why a server that stands by is not ready."""
    return [
        f"standing by: {role.role} is held by {role.server} (pid {role.pid})"
        for role in held
        if role.held and role.server != server and role.role in ("replication", "shuffle")
    ]


def leads(held: Sequence[RoleState], server: str) -> bool:
    """True if this server writes the log."""
    return any(role.held and role.server == server and role.role == "shuffle" for role in held)


def _silent_source(config: Config) -> list[str]:
    with connections.answering(config.source, "source", CHECK_SECONDS, name="pipeline readiness"):
        return []
