"""Managed Postgres: which service a source runs at, and how one does there what elsewhere is done by a superuser.

What is said here is in docs/providers.md too, with where it is from.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.printable import sql

_PROVIDER_ROLE = """\
select rolname::text from pg_catalog.pg_roles where rolname = any (%(roles)s)
order by array_position(%(roles)s::text[], rolname::text) limit 1
"""
"""The role by which a managed service is told, if this server is of one."""


@dataclass(frozen=True)
class PostgresProvider:
    """`role`: what only its servers have. `logical`: how wal_level becomes logical; `replication`: the right to it."""

    name: str
    role: str
    logical: str
    replication: str = 'alter role "{user}" with replication'

    def granting(self, user: str) -> str:
        """The statement that lets this user replicate; any name is quoted."""
        return sql(self.replication.format(user=user.replace('"', '""')))


_PLAIN = PostgresProvider("", "", "set wal_level = logical in its configuration and restart the source")
PROVIDERS = (
    PostgresProvider(
        "Amazon RDS or Aurora",
        "rds_superuser",
        "set rds.logical_replication = 1 in a separate parameter group, reboot",
        'grant rds_replication to "{user}"',
    ),
    PostgresProvider(
        "Google Cloud SQL", "cloudsqlsuperuser", "set the flag cloudsql.logical_decoding = on, which restarts it"
    ),
    PostgresProvider("Azure Database", "azure_pg_admin", "set the server parameter wal_level = LOGICAL, restart"),
    PostgresProvider("Neon", "neon_superuser", "enable logical replication in the project's settings"),
    PostgresProvider("Supabase", "supabase_admin", "its documents name no setting for it: ask its support"),
)


def find_provider(source: Connection) -> PostgresProvider:
    """Where the source runs, as far as its roles tell; else how one does it at one's own server."""
    roles = [provider.role for provider in PROVIDERS]
    found = queries.value(source, _PROVIDER_ROLE, {"roles": roles})
    return next((provider for provider in PROVIDERS if provider.role == found), _PLAIN)
