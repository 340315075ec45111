"""Connections to followers. Their passwords come from libpq's files or the environment, and are never stored."""

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
"""Parameters of libpq that must not be stored or shown."""
_ADDRESS = ("host", "hostaddr", "port", "dbname")


def parse_dsn(dsn: str) -> dict[str, str]:
    """Return the libpq parameters of a follower's DSN. Raises FollowerRefusedError, also if one of them is a secret."""
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


def with_defaults(found: Mapping[str, str]) -> dict[str, str]:
    """Add the parts of the address that libpq takes from the environment, unless a service may define them."""
    defaults = {} if "service" in found else {each.keyword.decode(): each.val for each in pq.Conninfo.get_defaults()}
    known = {name: value.decode() for name, value in defaults.items() if value and name in _ADDRESS}
    return {**known, **found}


def label(name: str) -> str:
    """Return how messages name a follower."""
    return f'follower "{name}"'


def connect(name: str, dsn: str, *, program: str, **options: Any) -> Connection:
    """Return a connection to the follower in autocommit; `program` is its `application_name`.

    Raises DatabaseUnavailableError with libpq's reason and what to do.
    """
    options.setdefault("settings", session_settings.SOURCE)
    try:
        return connections.connect_plainly(with_password(name, dsn), name=program, **options)
    except psycopg.OperationalError as error:
        raise unavailable(name, dsn, error) from error


def connect_catalog(config: Config) -> Connection:
    """Return a session at the source that reads its catalogs for followers. Raises DatabaseUnavailableError."""
    return connections.connect(config.source, "source", name="pipeline follower schema")


@contextmanager
def answering(name: str, dsn: str, seconds: float, *, program: str) -> Iterator[Connection]:
    """Connect to a follower that must answer within `seconds`, as `connections.answering` does.

    Raises DatabaseUnavailableError.
    """
    given = with_password(name, dsn)
    with connections.answering(given, label(name), seconds, name=program) as follower:
        yield follower


def unavailable(name: str, dsn: str, error: BaseException) -> DatabaseUnavailableError:
    """Return the error for a follower that does not answer or that refused a statement, with the reason."""
    variable = follower_passwords.variable(name)
    login = f"the user in --dsn, or the password in PGPASSFILE, a service file or {variable}"
    return connections.unavailable(dsn, label(name), error, setting="--dsn", login=login)


def with_password(name: str, dsn: str) -> str:
    """Add the follower's password to its DSN, if a file or the environment has one.

    The password is read again each time, so that its file may change. Raises ConfigError for a file without a password.
    """
    variable = follower_passwords.variable(name)
    password = secret_files.read([variable]).get(variable) or os.environ.get(variable)
    return make_conninfo(dsn, password=password) if password else dsn
