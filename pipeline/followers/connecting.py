"""Connections to followers. Passwords are where libpq has them, or in the environment, and in no database of ours."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from pipeline.config import follower_passwords, secret_files, values
from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError, FollowerRefusedError
from pipeline.postgres import connections, session_settings
from pipeline.postgres.connections import Connection

SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
"""Parameters of libpq that nobody may read."""
_PLACE = ("host", "hostaddr", "port", "dbname")


def parts(dsn: str) -> dict[str, str]:
    """What a follower's DSN has of libpq's parameters.

    Raises FollowerRefusedError, also where one of them is a secret.
    """
    try:
        found = values.dsn_parts(dsn)
    except ValueError as error:
        raise FollowerRefusedError(f"--dsn: {error}") from None
    if "password" in found:
        raise FollowerRefusedError(
            "--dsn has a password, which would be stored with it; leave it out, and have it in PGPASSFILE or the file "
            f"of passfile=, in a service file, or in {follower_passwords.PREFIX}<NAME>, here and where the server runs"
        )
    for name in SECRETS:
        if name in found:
            raise FollowerRefusedError(
                f"--dsn has {name}, a secret, which would be stored with it; "
                "leave it out, and have it in a service file"
            )
    return found


def resolved(found: Mapping[str, str]) -> dict[str, str]:
    """These parameters with those that libpq takes from the environment; a service keeps what it may say open."""
    defaults = {} if "service" in found else {each.keyword.decode(): each.val for each in pq.Conninfo.get_defaults()}
    known = {name: value.decode() for name, value in defaults.items() if value and name in _PLACE}
    return {**known, **found}


def what(name: str) -> str:
    """What messages call a follower."""
    return f'follower "{name}"'


def connect(name: str, dsn: str, *, program: str, **options: Any) -> Connection:
    """A connection in autocommit, with this process's environment; the server sees it as `program`.

    Raises DatabaseUnavailableError with libpq's reason and what to do.
    """
    options.setdefault("settings", session_settings.SOURCE)
    try:
        return connections.connect_plainly(with_password(name, dsn), name=program, **options)
    except psycopg.OperationalError as error:
        raise unavailable(name, dsn, error) from error


def connect_catalog(config: Config) -> Connection:
    """A session at the source that reads its catalogs for followers. Raises DatabaseUnavailableError."""
    return connections.connect(config.source, "source", name="pipeline follower schema")


@contextmanager
def answering(name: str, dsn: str, seconds: float, *, program: str) -> Iterator[Connection]:
    """For one look, as `connections.answering` has it. Raises DatabaseUnavailableError."""
    given = with_password(name, dsn)
    with connections.answering(given, what(name), seconds, name=program) as follower:
        yield follower


def unavailable(name: str, dsn: str, error: BaseException) -> DatabaseUnavailableError:
    """The error for a follower that does not answer, or refused a statement, which is then said."""
    variable = follower_passwords.variable(name)
    login = f"the user in --dsn, or the password in PGPASSFILE, a service file or {variable}"
    return connections.unavailable(dsn, what(name), error, setting="--dsn", login=login)


def with_password(name: str, dsn: str) -> str:
    """Looked for anew each time, so that one in a file may be changed. Raises ConfigError for a file that has none."""
    variable = follower_passwords.variable(name)
    password = secret_files.read([variable]).get(variable) or os.environ.get(variable)
    return make_conninfo(dsn, password=password) if password else dsn
