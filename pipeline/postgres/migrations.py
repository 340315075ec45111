"""The schema of the pipeline database: migrate it to head, or check that it is at head. Uses Alembic.

Alembic and SQLAlchemy are imported only to migrate: importing them takes as long as the rest of a start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import psycopg
from psycopg.sql import SQL, Identifier

from pipeline.errors import SchemaError
from pipeline.postgres import connections, functions, queries
from pipeline.printable import sql

if TYPE_CHECKING:
    import sqlalchemy
    from alembic.config import Config as AlembicConfig

SCHEMA = "pipeline"
LOCK_TIMEOUT = "10s"
"""The time that a migration waits for other migrations, and for locks that readers hold."""
LOCK_KEY = 7_146_290_150_143_411_457
"""The key of the advisory lock that is held while tables are created or migrated."""
OLDEST = "0013"
"""The revision that the first migration creates. It contains all earlier revisions."""


def upgrade(dsn: str, events_table: str = "public.sequin_events") -> None:
    """Migrate the pipeline database to the newest revision and functions. Does nothing if it has them.

    If a table named `events_table` exists, it is migrated, too; other tables stay as they are. Several processes may
    call this at the same time. Raises SchemaError for a revision that this code does not know, or if a lock is not free
    within LOCK_TIMEOUT; DatabaseUnavailableError if the database does not answer.
    """
    with connections.connect(dsn, "pipeline database", name="pipeline schema") as connection:
        if current_revision(connection) == head() and functions.are_current(connection):
            return
    from alembic import command

    with _migrating(dsn) as alembic:
        alembic.attributes["events_table"] = events_table
        command.upgrade(alembic, "head")


def downgrade(dsn: str, revision: str) -> None:
    """Return to `revision` ("base": before the first). This drops what later revisions created, with its data."""
    from alembic import command

    with _migrating(dsn) as alembic:
        command.downgrade(alembic, revision)


def current(dsn: str) -> str | None:
    """Return the revision of the pipeline database; None if it was never migrated."""
    with connections.connect(dsn, "pipeline database", name="pipeline schema") as connection:
        return current_revision(connection)


def current_revision(connection: connections.Connection) -> str | None:
    """Return the revision of the database of an open connection; None if it was never migrated."""
    if not queries.value(connection, "select to_regclass('pipeline.alembic_version') is not null"):
        return None
    found: str | None = queries.value(connection, "select version_num from pipeline.alembic_version")
    return found


def install_functions(connection: connections.Connection) -> None:
    """Install this version's SQL functions in a database at head. The caller must hold the migration lock."""
    with connection.transaction():
        if current_revision(connection) == head():
            functions.install(connection)


def require_head(connection: connections.Connection) -> None:
    """Raise SchemaError unless the pipeline database is at this version's revision, which every command needs."""
    revision = current_revision(connection)
    if revision is None:
        raise SchemaError(
            "the pipeline database was never migrated; run `pipeline migrate` first, or start `pipeline serve`"
        )
    if revision != head():
        refuse_unfit(connection)
        raise SchemaError("the pipeline database is not at the newest revision; run `pipeline migrate` first")


def refuse_unfit(connection: connections.Connection) -> None:
    """Raise SchemaError if `upgrade` would: unknown revision, or no privilege to create tables. Changes nothing."""
    revision = current_revision(connection)
    if revision is not None and revision.isdigit() and int(revision) < int(OLDEST):
        raise SchemaError(
            f"the pipeline database is at revision {revision!r}, from before version 0.1.0, and this version migrates "
            f"from revision {OLDEST} on; start one that knows {OLDEST} as its newest revision once, or set "
            "PIPELINE_DATABASE_DSN to a new database, which reads all tables again"
        )
    if revision is not None and revision not in _known():
        raise SchemaError(
            f"the pipeline database is at revision {revision!r}, which this version of the server does not know; "
            "run the version that made it, or a newer one"
        )
    if grants := missing_grants(connection):
        user, name = connection.info.user, connection.info.dbname
        raise SchemaError(
            f'user "{user}" may not create tables in the pipeline database {name}; run there as its owner: '
            + sql(", and ".join(grants))
        )


def missing_grants(connection: connections.Connection) -> list[str]:
    """Return the grants that this user lacks for the first migration; empty if the database was migrated before."""
    if current_revision(connection) is not None:
        return []
    query = """select has_database_privilege(current_database(), 'create'),
        coalesce(has_schema_privilege(to_regnamespace('public'), 'create'), false)"""
    row = connection.execute(query).fetchone()
    assert row is not None  # noqa: S101  a query without a table
    user, database = Identifier(connection.info.user), Identifier(connection.info.dbname)
    grants = (
        SQL("grant create on database {} to {}").format(database, user),
        SQL("grant create on schema public to {}").format(user),
    )
    return [grant.as_string(connection) for grant, granted in zip(grants, row, strict=True) if not granted]


def head() -> str:
    """Return the newest revision in this code."""
    known = _known()
    heads = known.keys() - set(known.values())
    if len(heads) != 1:
        raise SchemaError(f"{_location()} has {len(heads)} newest migrations instead of one; install the server again")
    return heads.pop()


def engine(dsn: str) -> sqlalchemy.Engine:
    """Return an engine of SQLAlchemy for Alembic. It connects by `connections.connect`, and raises its errors."""
    import sqlalchemy

    def connect() -> psycopg.Connection[tuple[object, ...]]:
        connection = connections.connect(dsn, "pipeline database", name="pipeline migrate")
        connection.autocommit = False
        return connection

    return sqlalchemy.create_engine("postgresql+psycopg://", creator=connect, poolclass=sqlalchemy.NullPool)


@contextmanager
def migration_lock(connection: sqlalchemy.Connection) -> Iterator[None]:
    """Hold the migration lock of this database, with lock_timeout set. Creates the schema if it is absent."""
    import sqlalchemy

    connection.execute(sqlalchemy.text(f"set lock_timeout = '{LOCK_TIMEOUT}'"))
    connection.execute(sqlalchemy.text(f"select pg_advisory_lock({LOCK_KEY})"))
    connection.commit()
    try:
        connection.execute(sqlalchemy.text(f"create schema if not exists {SCHEMA}"))
        connection.commit()
        yield
        connection.commit()
    finally:
        connection.rollback()
        connection.execute(sqlalchemy.text(f"select pg_advisory_unlock({LOCK_KEY})"))
        connection.commit()


@contextmanager
def _migrating(dsn: str) -> Iterator[AlembicConfig]:
    from alembic.util.exc import CommandError
    from sqlalchemy.exc import DBAPIError

    alembic = _alembic()
    try:
        with engine(dsn).connect() as connection:
            refuse_unfit(cast(connections.Connection, connection.connection.driver_connection))
            connection.rollback()
            alembic.attributes["connection"] = connection
            yield alembic
    except DBAPIError as error:
        raise _explained(error.orig or error) from error
    except psycopg.Error as error:
        raise _explained(error) from error
    except CommandError as error:
        raise SchemaError(f"migration failed: {error}") from error


def _known() -> dict[str, str | None]:
    """Return each revision in this code with the one before it, from the files that Alembic would import."""
    files = [path.read_text() for path in (_location() / "versions").glob("*.py")]
    return {_assigned(text, "revision") or "": _assigned(text, "down_revision") for text in files}


def _assigned(text: str, name: str) -> str | None:
    found = re.search(rf'^{name} = "(\w+)"', text, re.MULTILINE)
    return found[1] if found else None


def _explained(cause: BaseException) -> SchemaError:
    if isinstance(cause, psycopg.errors.LockNotAvailable):
        return SchemaError(
            f"a migration waited {LOCK_TIMEOUT} for a lock that another session holds; end that session "
            "(pg_stat_activity, pg_locks), or try again"
        )
    if isinstance(cause, psycopg.errors.InsufficientPrivilege):
        return SchemaError(
            f"the pipeline database's user may not create what the server needs: {connections.one_line(cause)}; "
            "grant create on the database and on schema public"
        )
    if isinstance(cause, psycopg.errors.DiskFull):
        return SchemaError(
            f"the pipeline database's disk is full: {connections.one_line(cause)}; free some space there"
        )
    return SchemaError(
        f"migration of the pipeline database failed: {connections.one_line(cause)}; fix that and start again"
    )


def _alembic() -> AlembicConfig:
    from alembic.config import Config as AlembicConfig

    alembic = AlembicConfig()
    alembic.set_main_option("script_location", str(_location()).replace("%", "%%"))
    return alembic


def _location() -> Path:
    shipped = Path(__file__).parents[1] / "_alembic"
    return shipped if shipped.is_dir() else Path(__file__).parents[2] / "alembic"
