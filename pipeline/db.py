"""Connections to both databases, the `.sql` reader, and the one place where driver errors become ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from pipeline.config import describe
from pipeline.errors import Unavailable

Connection = psycopg.Connection[TupleRow]
CONNECT_TIMEOUT = 10
"""Seconds to wait for a connection to be accepted."""


@cache
def sql(package: str, name: str) -> LiteralString:
    """The statement in `pipeline/<package>/sql/<name>.sql`, read once."""
    return files(f"pipeline.{package}").joinpath("sql", f"{name}.sql").read_text("utf-8")


def connect(dsn: str, what: str, *, name: str = "pipeline", **options: Any) -> Connection:
    """An autocommit connection that the server sees as `name`; `what` is the database's role in messages.

    Raises Unavailable with libpq's reason in one line.
    """
    conninfo = make_conninfo(dsn, connect_timeout=CONNECT_TIMEOUT, application_name=name)
    try:
        return psycopg.connect(conninfo, autocommit=True, **options)
    except psycopg.OperationalError as error:
        raise unavailable(dsn, what, error) from error


def unavailable(dsn: str, what: str, error: BaseException) -> Unavailable:
    """The error for a database that refused or dropped a connection."""
    return Unavailable(f"{what} ({describe(dsn)}) is not available: {one_line(error)}")


def one_line(error: BaseException) -> str:
    """A driver error's text without line breaks, context or row contents."""
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return error.diag.message_primary
    return "; ".join(part.strip() for part in str(error).splitlines() if part.strip()) or type(error).__name__


@contextmanager
def lost_connection(dsn: str, what: str) -> Iterator[None]:
    """Turn a connection that breaks inside the block into Unavailable."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise unavailable(dsn, what, error) from error
