"""Both databases of a test that runs the server against its own table `t`."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest


@pytest.fixture
def source(source_dsn: str) -> Iterator[psycopg.Connection]:
    """With a table `t` that has only a key, `id`."""
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table t (id int primary key)")
        yield connection


@pytest.fixture
def log(database_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        yield connection
