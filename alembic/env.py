"""Alembic's entry: for `alembic upgrade head` in the repository, and on boot with a connection from the server.

Both take the same advisory lock, so that servers that boot together migrate only once. Both set a lock_timeout: a
reader's lock may delay a migration, but other sessions never queue behind the migration for long.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from alembic import context
from alembic.util.exc import CommandError
from sqlalchemy import Connection

from pipeline.config import settings as config
from pipeline.errors import ConfigError, PipelineError
from pipeline.log import legacy_tables
from pipeline.log.table import DEFAULT
from pipeline.postgres import connections, databases, functions, migrations, role_locks
from pipeline.printable import say


def migrate_legacy_table(connection: Connection) -> None:
    """The first migration calls this for a legacy events table, since a migration itself imports no product code."""
    legacy_tables.migrate(cast(connections.Connection, connection.connection.driver_connection), DEFAULT)


def run(connection: Connection) -> None:
    """Migrate over `connection`, inside one transaction per revision."""
    context.config.attributes["migrate_legacy_table"] = migrate_legacy_table
    with _servers_ended(connection), migrations.migration_lock(connection):
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


def run_with_settings() -> None:
    """Migrate the database of the settings, or an embedded one that exists. Raises PipelineError."""
    given = config.load()
    if given.database_dsn is None and not databases.embedded_server(given).data.is_dir():
        raise ConfigError(
            f"PIPELINE_DATABASE_DSN is not set, and there is no embedded Postgres in {given.data_dir}; "
            "set it, or run `pipeline migrate`, which makes one"
        )
    with databases.without_source(given) as settings, migrations.engine(settings.database).connect() as opened:
        say(f"Alembic uses the pipeline database {config.describe(settings.database)}", file=sys.stderr)
        context.config.attributes["events_table"] = settings.events_table
        run(opened)


@contextmanager
def _servers_ended(connection: Connection) -> Iterator[None]:
    """Waits until no server works there, where a revision takes away what the version before uses.

    Others are applied at once: a newer standby migrates while an older server leads.
    """
    driver = cast(connections.Connection, connection.connection.driver_connection)
    reason = _what_is_taken(migrations.current_revision(driver), _target())
    driver.rollback()
    if reason is None:
        yield
        return
    driver.autocommit = True
    with role_locks.keep_servers_out(driver, reason):
        driver.autocommit = False
        try:
            yield
        finally:
            driver.rollback()
            driver.autocommit = True
    driver.autocommit = False


def _what_is_taken(current: str | None, target: str | None) -> str | None:
    known = {revision.revision for revision in context.script.walk_revisions()}
    if current not in known or target in ("", current):
        return None
    above = {revision.revision: revision for revision in context.script.iterate_revisions("heads", current)}
    if target not in above:
        return f"revision {target or 'base'} lacks what servers of revision {current} use"
    steps = [above[step.revision] for step in context.script.iterate_revisions(target, current)]
    taking = [step.revision for step in steps if not getattr(step.module, "additive", True)]
    return f"revision {taking[0]} takes away what servers of the version before use" if taking else None


def _target() -> str | None:
    """The revision asked for; None for the one before the first, and "" for a command that migrates nothing."""
    try:
        found = context.get_revision_argument()
    except KeyError:
        return ""
    return None if found is None else str(found)


if context.is_offline_mode():
    context.configure(dialect_name="postgresql", literal_binds=True, version_table_schema=migrations.SCHEMA)
    with context.begin_transaction():
        context.run_migrations()
        if context.get_revision_argument() == migrations.head():
            context.get_context().impl.static_output(functions.script())
elif (given := context.config.attributes.get("connection")) is not None:
    run(given)
else:
    try:
        run_with_settings()
    except PipelineError as error:
        raise CommandError(str(error)) from error
