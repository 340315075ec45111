"""Managed Postgres: finds the service that a source runs at, and how its users do what otherwise a superuser does.

The texts are in docs/operate/providers.md, too, with their sources.
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
"""The role that identifies a managed service, if this server belongs to one."""


@dataclass(frozen=True)
class PostgresProvider:
    """A managed service. `role`: only its servers have this role.

    `logical`: how wal_level becomes logical; `replication`: the statement that lets a user replicate.
    """

    name: str
    role: str
    logical: str
    replication: str = 'alter role "{user}" with replication'

    def granting(self, user: str) -> str:
        """Return the statement that lets this user replicate; any name is quoted."""
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
    PostgresProvider("Supabase", "supabase_admin", "its documents name no setting for this: ask Supabase's support"),
)


def find_provider(source: Connection) -> PostgresProvider:
    """Return the managed service whose role the source has; without such a role, the remedies for one's own server."""
    roles = [provider.role for provider in PROVIDERS]
    found = queries.value(source, _PROVIDER_ROLE, {"roles": roles})
    return next((provider for provider in PROVIDERS if provider.role == found), _PLAIN)
