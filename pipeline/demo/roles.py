"""The demo's roles at the source: one owns the shop, and the server has two small ones that replicate and read.

No session at the source, of the server or of a writer, belongs to a superuser.
"""

from __future__ import annotations

from pipeline.config.settings import Config
from pipeline.operate.preflight import role_sql
from pipeline.operate.preflight.role_sql import READING, REPLICATING, SourceRoles
from pipeline.postgres import connections, databases
from pipeline.postgres.embedded import EmbeddedServer
from pipeline.postgres.queries import statement

OWNER = "shop"
"""The role that owns the shop's tables and writes them."""


def make(server: EmbeddedServer) -> None:
    """Make the roles that are missing, as `pipeline check --sql --roles` does, and let one own the shop."""
    with connections.connect(server.dsn(databases.SOURCE), "source", name="demo") as administrator:
        for each in role_sql.of_roles(administrator, SourceRoles(REPLICATING, READING), ()):
            administrator.execute(each.encode())
        administrator.execute(statement("demo", "create_owner"))


def dsns(server: EmbeddedServer) -> dict[str, str]:
    """Return the settings that name the server's two roles."""
    return {
        "source_dsn": server.dsn(databases.SOURCE, REPLICATING),
        "source_read_dsn": server.dsn(databases.SOURCE, READING),
    }


def writing(config: Config) -> str:
    """Return the DSN of the shop's writers."""
    return databases.embedded_server(config).dsn(databases.SOURCE, OWNER)
