"""One source and three followers, as a tutorial of native subscriptions has them: what it wanted and lacked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.fixtures.postgres import Cluster
from tests.fixtures.served_follower import SHARED, SharedServer
from tests.fixtures.server import run_command
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group(SHARED)

USERS = "create table users (id int generated always as identity primary key, name text, email text)"
OTHERWISE = "create table users (email text, seen_at timestamptz default now(), id int primary key, name text)"
"""Other columns, in another order."""
LOAD = "insert into users (name, email) select 'u' || i, 'u' || i || '@example.com' from generate_series(1, %s::int) i"


class Walkthrough:
    """The source, its server, and three databases beside it."""

    def __init__(self, source: str, log: str, there: list[str], cluster: Cluster, folder: Path) -> None:
        self.source = psycopg.connect(source, autocommit=True)
        self.there = [psycopg.connect(dsn, autocommit=True) for dsn in there]
        self._given: dict[str, object] = {"source_dsn": source, "database_dsn": log}
        self._cluster, self._folder = cluster, folder

    def command(self, *arguments: str, status: int = 0) -> Any:
        """What it prints as JSON."""
        done = run_command(*arguments, "--json", folder=self._folder, **self._given)
        assert done.returncode == status, done
        return json.loads(done.stdout)

    def counts(self) -> list[int]:
        """Of the source and of each follower that can be asked."""
        open_ones = [each for each in (self.source, *self.there) if not each.closed]
        return [int(str(each.execute("select count(*) from users").fetchall()[0][0])) for each in open_ones]

    def allow(self, dsn: str, allowed: bool) -> None:
        """Whether the database can be connected to, as if its server were down."""
        name = str(conninfo_to_dict(dsn)["dbname"])
        with self._cluster.connect() as connection:
            alter = sql.SQL("alter database {} allow_connections {}")
            connection.execute(alter.format(sql.Identifier(name), sql.SQL(str(allowed).lower())))
            if not allowed:
                connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))

    def close(self) -> None:
        for each in (self.source, *self.there):
            each.close()


@pytest.fixture
def databases(follower_cluster: Cluster) -> Iterator[list[str]]:
    """Three empty ones, which go after their followers."""
    with ExitStack() as stack:
        yield [stack.enter_context(follower_cluster.database(f"slave{number}")) for number in range(1, 4)]


@pytest.fixture
def walkthrough(
    databases: list[str], shared_server: SharedServer, follower_cluster: Cluster, tmp_path: Path
) -> Iterator[Walkthrough]:
    source, log = shared_server.source.info.dsn, shared_server.log.info.dsn
    with closing(Walkthrough(source, log, databases, follower_cluster, tmp_path)) as made:
        made.source.execute(USERS.encode())
        made.there[2].execute(OTHERWISE.encode())
        shared_server.require_captured()
        yield made


def test_three_followers_cost_one_slot_and_are_equal_after_all(walkthrough: Walkthrough) -> None:
    dsns = [each.info.dsn for each in walkthrough.there]
    for dsn in dsns:  # T3: the same command for each, without a name
        walkthrough.command("followers", "add", "--dsn", dsn)
    source = walkthrough.source
    published = "select tablename from pg_publication_tables where pubname = 'pipeline'"
    assert source.execute(published).fetchall() == [("users",)]  # T2
    slots = "select active from pg_replication_slots where database = current_database()"
    assert source.execute(slots).fetchall() == [(True,)]  # T4
    found = walkthrough.command("status")["followers"]
    assert len({each["name"] for each in found}) == 3
    source.execute(LOAD, (10_000,))
    walkthrough.command("followers", "wait", *(each["name"] for each in found))
    assert walkthrough.counts() == [10_000] * 4  # T6
    rows = [
        each.execute("select id, name, email from users order by id").fetchall()
        for each in (source, *walkthrough.there)
    ]
    assert rows[1:] == rows[:1] * 3  # T13: columns are found by name
    walkthrough.allow(dsns[0], allowed=False)  # T7: one is down, the others do not care
    walkthrough.there[0].close()
    source.execute(LOAD, (5_000,))
    eventually(lambda: walkthrough.counts() == [15_000] * 3)
    walkthrough.allow(dsns[0], allowed=True)
    walkthrough.there[0] = psycopg.connect(dsns[0], autocommit=True)
    eventually(lambda: walkthrough.counts() == [15_000] * 4)
    source.execute("truncate users")  # T8
    eventually(lambda: walkthrough.counts() == [0] * 4)
    assert source.execute(slots).fetchall() == [(True,)]
