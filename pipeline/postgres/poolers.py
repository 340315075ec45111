"""Whether a pooler or proxy is between us and a server."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection


@dataclass(frozen=True)
class PoolerReport:
    """`in_between`: not the server itself answered. `shared`: one server process served two sessions at a time."""

    in_between: bool
    shared: bool


def look(first: Connection, second: Connection) -> PoolerReport:
    """Two sessions of one DSN, which may be in no transaction.

    A pooler reports its own process ids, and between transactions lets two sessions share one server process.
    """
    announced, pid = first.info.backend_pid, _backend_pid(first)
    with second.transaction():
        shared = _backend_pid(second) == pid
    return PoolerReport(announced != pid, shared or _backend_pid(first) != pid)


def _backend_pid(connection: Connection) -> int:
    return int(queries.value(connection, "select pg_catalog.pg_backend_pid()", default=0))
