"""Databases with an events table of an earlier version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from pipeline.postgres import migrations
from tests.fixtures.postgres import Cluster


@pytest.fixture
def server(request: pytest.FixtureRequest, clusters: Callable[[int], Cluster]) -> Cluster:
    return clusters(getattr(request, "param", 15))


@pytest.fixture
def empty_dsn(server: Cluster) -> Iterator[str]:
    """A database with nothing in it yet."""
    with server.database("old") as dsn:
        yield dsn


@pytest.fixture(scope="session")
def bare(clusters: Callable[[int], Cluster]) -> Iterator[Callable[[Cluster], str]]:
    """The name of a database at head without an events table, to be cloned."""
    with ExitStack() as stack:
        made: dict[int, str] = {}

        def template(server: Cluster) -> str:
            if server.major not in made:
                dsn = stack.enter_context(server.database("bare"))
                with psycopg.connect(dsn, autocommit=True) as connection:
                    connection.execute("create table public.sequin_events ()")  # another user's, for a while
                    migrations.upgrade(dsn, "log.events")
                    connection.execute("drop table public.sequin_events")
                    made[server.major] = connection.info.dbname
            return made[server.major]

        yield template


@pytest.fixture
def bare_dsn(server: Cluster, bare: Callable[[Cluster], str]) -> Iterator[str]:
    with server.database("old", bare(server)) as dsn:
        yield dsn


@pytest.fixture
def old(bare_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """The role that made the table, before any server was started."""
    with psycopg.connect(bare_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def first(empty_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """The same where nothing was ever migrated."""
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        yield connection
