"""Finds out whether two connections lead to one database.

An advisory lock proves it. The system identifier does not, because copies of a cluster share it.
"""

from __future__ import annotations

import secrets
from typing import Literal

from pipeline.followers.registry import DatabaseIdentity
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

Relation = Literal["same database", "same cluster", "apart"]
_DATABASE = """\
select (select system_identifier::text from pg_catalog.pg_control_system()) as system_identifier,
    d.oid::bigint as database_oid, d.datname::text as database_name
from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()
"""
"""Identify the database of this connection."""


def read(follower: Connection) -> DatabaseIdentity:
    """Return the identity of a follower's database, as the registry stores it."""
    found = queries.one(follower, DatabaseIdentity, _DATABASE)
    assert found is not None  # noqa: S101  the current database exists
    return found


def find_relation(follower: Connection, other: Connection) -> Relation:
    """Take a random advisory lock over the first connection, and search for it over the other one.

    Neither connection may lead through a pooler.
    """
    key = secrets.randbits(62)
    follower.execute("select pg_catalog.pg_advisory_lock(%s)", (key,))
    try:
        found: Relation = queries.value(
            other, statement("followers.admission", "lock_of"), {"key": key}, default="apart"
        )
    finally:
        follower.execute("select pg_catalog.pg_advisory_unlock(%s)", (key,))
    return found
