"""The Postgres role for SQL readers: it may read the events tables, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql

from pipeline.config.settings import Config
from pipeline.errors import ConfigError, PipelineError
from pipeline.log import table_setup, tables
from pipeline.log.table import EventsTable
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.printable import identifier

_LONGEST = 63
_REVOKED = (
    "revoke all on all tables in schema pipeline from {role}",
    "revoke all on all sequences in schema pipeline from {role}",
    "revoke all on all functions in schema pipeline from {role}",
    "revoke all on schema pipeline from {role}",
    "revoke all on public.wal_events, public.consumer_records from {role}",
    "revoke all on {table} from {role}",
)
_GRANTED = (
    "grant connect on database {database} to {role}",
    "grant usage on schema {schema} to {role}",
    "grant select on {table} to {role}",
    "grant usage on schema pipeline to {role}",  # for pipeline.populate
)


def ensure(config: Config, role: str) -> list[str]:
    """Create the role, or update its privileges; returns lines that report the result.

    Raises ConfigError for an invalid name or a role that has more privileges than a reader, PipelineError if this user
    may not create the role.
    """
    if not role or len(role.encode()) > _LONGEST or "\0" in role:
        raise ConfigError(f"{role!r} is not a valid name of a role; use 1 to {_LONGEST} bytes")
    with connections.connect(config.database, "pipeline database", name="pipeline migrate") as connection:
        for name in config.events_tables:  # as the server does when it starts
            table_setup.ensure(connection, EventsTable.parse(name))
        readable = tables.with_known(connection, config.events_tables)
        try:
            with connection.transaction():
                created, can_login = _create(connection, role, readable)
                for table in readable:
                    _grant(connection, role, table)
                for table in readable:
                    _require_reader(connection, role, table)
        except psycopg.errors.InsufficientPrivilege as error:
            raise PipelineError(
                f'role "{role}" cannot be created: {connections.one_line(error)}; '
                f"run this as a user who may create roles and owns the tables, or create the role first"
            ) from error
    return _report(role, ", ".join(map(str, readable)), created, can_login)


def _create(connection: Connection, role: str, readable: Sequence[EventsTable]) -> tuple[bool, bool]:
    """Create the role if it does not exist; return if it was created now, and if it may log in."""
    present = can_login = False
    for table in readable:
        values = {"role": role, "table": table.identifier.as_string(connection), "schema": table.schema}
        found = connection.execute(queries.statement("operate.repair", "reader_facts"), values).fetchone()
        assert found is not None  # noqa: S101  one row in any case
        _, present, can_login, refused = found
        if refused:
            raise ConfigError(f'role "{role}" would see more than the events: {refused}; use another role')
    if not present:
        connection.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
    return not present, can_login or not present


def _grant(connection: Connection, role: str, table: EventsTable) -> None:
    names = {
        "role": sql.Identifier(role),
        "table": table.identifier,
        "schema": sql.Identifier(table.schema),
        "database": sql.Identifier(connection.info.dbname),
    }
    for statement in (*_REVOKED, *_GRANTED):
        connection.execute(sql.SQL(statement).format(**names))


def _require_reader(connection: Connection, role: str, table: EventsTable) -> None:
    values = {"role": role, "table": table.identifier.as_string(connection)}
    row = connection.execute(queries.statement("operate.repair", "reader_surplus"), values).fetchone()
    if row is not None and row[0] is not None:
        raise ConfigError(
            f'role "{role}" may use more than the events: {row[0]}; '
            "revoke that from public, or from the roles that it is a member of"
        )


def _report(role: str, readable: str, created: bool, can_login: bool) -> list[str]:
    state = "was created" if created else "is up to date"
    lines = [f'role "{role}" {state}: it may read {readable} and nothing else of the server']
    if created:
        lines.append(f"it has no password yet; set one in psql: \\password {identifier(role)}")
    if not can_login:
        lines.append(f"it may not log in; if it should: alter role {identifier(role)} login")
    return lines
