"""Alembic's entry: for `alembic upgrade head` in the repository, and on boot with a connection from the server.

Both take the same advisory lock, so that servers that boot together migrate only once. Both set a lock_timeout: a
reader's lock may delay a migration, but other sessions never queue behind the migration for long.
"""

from __future__ import annotations

from typing import cast

from alembic import context
from sqlalchemy import Connection

from pipeline.config import settings as config
from pipeline.log import legacy_tables
from pipeline.log.table import DEFAULT
from pipeline.postgres import connections, databases, functions, migrations


def migrate_legacy_table(connection: Connection) -> None:
    """The first migration calls this for a legacy events table, since a migration itself imports no product code."""
    legacy_tables.migrate(cast(connections.Connection, connection.connection.driver_connection), DEFAULT)


def run(connection: Connection) -> None:
    """Migrate over `connection`, inside one transaction per revision."""
    context.config.attributes["migrate_legacy_table"] = migrate_legacy_table
    with migrations.migration_lock(connection):
        context.configure(
            connection=connection,
            version_table="alembic_version",
            version_table_schema=migrations.SCHEMA,
            transaction_per_migration=True,
        )
        with context.begin_transaction():
            context.run_migrations()
        connection.commit()
        migrations.install_functions(cast(connections.Connection, connection.connection.driver_connection))


if context.is_offline_mode():
    context.configure(dialect_name="postgresql", literal_binds=True, version_table_schema=migrations.SCHEMA)
    with context.begin_transaction():
        context.run_migrations()
        if context.get_revision_argument() == migrations.head():
            context.get_context().impl.static_output(functions.script())
elif (given := context.config.attributes.get("connection")) is not None:
    run(given)
else:
    with databases.resolved(config.load()) as settings, migrations.engine(settings.database).connect() as opened:
        context.config.attributes["events_table"] = settings.events_table
        run(opened)
