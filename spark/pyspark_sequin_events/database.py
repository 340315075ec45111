"""Reports in one plain line what the pipeline database refuses, and which events it no longer has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from adbc_driver_postgresql import dbapi

from pyspark_sequin_events import catalog


@contextmanager
def open_database(dsn: str) -> Iterator[dbapi.Connection]:
    """Open a connection for the block. Raises ValueError with libpq's reason."""
    with plain_errors(), catalog.connect(dsn) as connection:
        yield connection


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn errors of the driver into a ValueError of one line."""
    try:
        yield
    except dbapi.Error as error:
        raise ValueError(f"sequin_events: the pipeline database refused: {' '.join(str(error).split())}") from error


def require_kept(events_table: str, after: int, kept_after: int, remedy: str = "") -> None:
    """Raise ValueError if retention has dropped events after `after`: it has dropped all up to `kept_after`."""
    if after < kept_after:
        remedy = remedy or f"set option after to {kept_after}, or leave it out"
        raise ValueError(
            f"sequin_events: seq {after + 1} to {kept_after} of {events_table} were dropped by retention; {remedy}"
        )
