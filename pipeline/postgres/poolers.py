"""Detecting a pooler or proxy between this process and a server."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection


@dataclass(frozen=True)
class PoolerReport:
    """The result of the check for a pooler.

    `in_between`: another program than the server answers. `shared`: one server process serves two sessions at a time.
    """

    in_between: bool
    shared: bool


def detect_pooler(first: Connection, second: Connection) -> PoolerReport:
    """Find out, from two sessions of one DSN, whether a pooler is in between. They must be in no transaction.

    A pooler reports process ids that it invents, and between transactions lets two sessions share one server process.
    """
    announced, pid = first.info.backend_pid, _backend_pid(first)
    with second.transaction():
        shared = _backend_pid(second) == pid
    return PoolerReport(announced != pid, shared or _backend_pid(first) != pid)


def _backend_pid(connection: Connection) -> int:
    return int(queries.value(connection, "select pg_catalog.pg_backend_pid()", default=0))
