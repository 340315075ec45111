"""Queries: the `.sql` files of the product, and their answers in the shape that the caller wants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString, TypeVar

from psycopg.rows import class_row
from psycopg.sql import SQL, Composable, Composed, Literal

from pipeline.postgres.connections import Connection

T = TypeVar("T")
Query = LiteralString | bytes | SQL | Composed
Values = Sequence[Any] | Mapping[str, Any] | None


@cache
def statement(package: str, name: str) -> LiteralString:
    """Return the statement in `pipeline/<package>/sql/<name>.sql`, which is read once."""
    return files(f"pipeline.{package}").joinpath("sql", f"{name}.sql").read_text("utf-8")


def composed(text: LiteralString, **parts: Composable) -> bytes:
    """Return the statement with these parts, for one that runs often: psycopg composes a `Composed` at each run."""
    return SQL(text).format(**parts).as_bytes()


def literals(**values: Any) -> dict[str, str]:
    """Return values as SQL, for `statement(…) % literals(…)`: a text that is sent without parameters."""
    return {name: Literal(value).as_string() for name, value in values.items()}


def trusted(text: str) -> SQL:
    """Return names and expressions as SQL. Use it only for text that the catalog of the source printed and quoted."""
    return SQL(text)


def rows(connection: Connection, shape: type[T], query: Query, values: Values = None) -> list[T]:
    """Return all rows of a query, each as `shape`, a class whose parameters are the columns."""
    with connection.cursor(row_factory=class_row(shape)) as cursor:
        return cursor.execute(query, values).fetchall()


def one(connection: Connection, shape: type[T], query: Query, values: Values = None) -> T | None:
    """Return the first row of a query as `shape`, as `rows` does; None if the query returns no row."""
    with connection.cursor(row_factory=class_row(shape)) as cursor:
        return cursor.execute(query, values).fetchone()


def value(connection: Connection, query: Query, values: Values = None, *, default: Any = None) -> Any:
    """Return the first column of a query's first row; `default` if the query returns no row."""
    row = connection.execute(query, values).fetchone()
    return row[0] if row else default


@contextmanager
def lock_timeout(connection: Connection, timeout: str) -> Iterator[None]:
    """Limit how long statements in the block wait for a lock. The connection must be in a transaction.

    After `timeout`, say '2s', a statement raises LockNotAvailable. The end of the block restores the former limit; an
    error does not, because it ends the transaction.
    """
    before = value(connection, "select current_setting('lock_timeout')")
    connection.execute("select set_config('lock_timeout', %s, true)", (timeout,))
    yield
    connection.execute("select set_config('lock_timeout', %s, true)", (before,))
