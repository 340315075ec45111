"""Ask a database: the `.sql` files of the product, and answers in the shape that the caller wants."""

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
    """The statement in `pipeline/<package>/sql/<name>.sql`, read once."""
    return files(f"pipeline.{package}").joinpath("sql", f"{name}.sql").read_text("utf-8")


def composed(text: LiteralString, **parts: Composable) -> bytes:
    """The statement with these parts: for one that is run often, since psycopg composes a `Composed` each time."""
    return SQL(text).format(**parts).as_bytes()


def literals(**values: Any) -> dict[str, str]:
    """Values as SQL, for `statement(…) % literals(…)`: a text that goes without parameters, perhaps beside others."""
    return {name: Literal(value).as_string() for name, value in values.items()}


def trusted(text: str) -> SQL:
    """Names and expressions as SQL, as the catalog of the source has printed and quoted them: never any other text."""
    return SQL(text)


def rows(connection: Connection, shape: type[T], query: Query, values: Values = None) -> list[T]:
    """All rows of a query, each as `shape`, a class whose parameters are the columns."""
    with connection.cursor(row_factory=class_row(shape)) as cursor:
        return cursor.execute(query, values).fetchall()


def one(connection: Connection, shape: type[T], query: Query, values: Values = None) -> T | None:
    """The first row of a query, as `rows` has them; None when there is none."""
    with connection.cursor(row_factory=class_row(shape)) as cursor:
        return cursor.execute(query, values).fetchone()


def value(connection: Connection, query: Query, values: Values = None, *, default: Any = None) -> Any:
    """The first column of a query's first row; `default` when there is no row."""
    row = connection.execute(query, values).fetchone()
    return row[0] if row else default


@contextmanager
def lock_timeout(connection: Connection, timeout: str) -> Iterator[None]:
    """In a transaction: statements inside wait no longer than `timeout` ('2s') for a lock, then raise LockNotAvailable.

    Statements behind it wait as they did before; after an error the transaction is at its end anyway.
    """
    before = value(connection, "select current_setting('lock_timeout')")
    connection.execute("select set_config('lock_timeout', %s, true)", (timeout,))
    yield
    connection.execute("select set_config('lock_timeout', %s, true)", (before,))
