"""Whether two connections lead to one database, proved by a lock: copies of a cluster share its identifier."""

from __future__ import annotations

import secrets
from typing import Literal

from pipeline.followers.registry import Database
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

Relation = Literal["same database", "same cluster", "apart"]
_DATABASE = """\
select (select system_identifier::text from pg_catalog.pg_control_system()) as system_identifier,
    d.oid::bigint as database_oid, d.datname::text as database_name
from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()
"""
"""Which database this is."""


def read(follower: Connection) -> Database:
    """What is stored of a follower's database."""
    found = queries.one(follower, Database, _DATABASE)
    assert found is not None  # noqa: S101  the database we are in
    return found


def find_relation(follower: Connection, other: Connection) -> Relation:
    """A random advisory lock is taken at the first and looked for at the other. Neither may be behind a pooler."""
    key = secrets.randbits(62)
    follower.execute("select pg_catalog.pg_advisory_lock(%s)", (key,))
    try:
        found: Relation = queries.value(
            other, statement("followers.admission", "lock_of"), {"key": key}, default="apart"
        )
    finally:
        follower.execute("select pg_catalog.pg_advisory_unlock(%s)", (key,))
    return found
