"""Connections that speak the replication protocol, one walsender each at the source, and their names there."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import psycopg

from pipeline.config.settings import describe
from pipeline.errors import SourceUnfitError
from pipeline.postgres import connections, open_sessions
from pipeline.postgres.connections import Connection

NAME_PREFIX = "pipeline "
"""The application_name of our walsenders at the source begins with this text."""


@dataclass(frozen=True)
class SystemIdentity:
    """The source's answer to IDENTIFY_SYSTEM."""

    system_identifier: str
    timeline: int
    flushed: int
    database: str


def connect(dsn: str, name: str, timeout: int | None = None) -> Connection:
    """Open a replication connection that the source sees as `name`, with the settings of its role and database.

    `timeout`: seconds within which the source must accept it, if not the usual ones. Raises DatabaseUnavailableError,
    or SourceUnfitError if the source refuses replication connections.
    """
    limit = {"connect_timeout": str(timeout)} if timeout else {}
    try:  # PGconn.connect would block every other thread until the source has answered
        info = connections.conninfo(dsn, replication="database", application_name=name, **limit)
        connection = psycopg.connect(info, autocommit=True)
    except psycopg.OperationalError as error:
        if "must be superuser or replication role" in str(error) or "REPLICATION attribute" in str(error):
            raise SourceUnfitError(
                f"user of {describe(dsn)} may not replicate; run: alter role … with replication"
            ) from error
        if "unsupported startup parameter" in str(error):  # PgBouncer before 1.23
            raise SourceUnfitError(
                f"a pooler at {describe(dsn)} takes no replication connections; connect to the source directly"
            ) from error
        raise connections.unavailable(dsn, "source", error) from error
    open_sessions.add(connection, dsn)
    return connection


def application_name(source_id: uuid.UUID, part: int = 0) -> str:
    """Return the name of our walsender at the source: no worker of another pipeline database has the same name."""
    return f"{NAME_PREFIX}{source_id}{f' part {part}' if part else ''}"
