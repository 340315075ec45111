"""How many rows a table has, bounded, with any name and under any lock."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from pipeline.followers import row_counts
from pipeline.followers.operating.watch import RowCounter
from pipeline.followers.registry import NamedTable
from pipeline.followers.row_counts import EXACTLY, SETTINGS, RowCount
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from tests.fixtures.postgres import Cluster
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group("followers-row-counts")
MANY = f"""
create table many (id int) with (autovacuum_enabled = false);
insert into many select generate_series(1, {EXACTLY + 500});
create table parted (id int) partition by range (id);
create table part partition of parted for values from (0) to (10000000);
insert into parted select generate_series(1, {EXACTLY + 500});
create table "%o d" (id int);
analyze many, part;
"""


@pytest.fixture(scope="module")
def dsn(cluster: Cluster) -> Iterator[str]:
    with cluster.database("counted") as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(MANY.encode())
        connection.execute(b"create table few (id int); insert into few select generate_series(1, 5)")
        connection.execute(b"create table child () inherits (few); insert into child values (1)")
        yield dsn


def names(*tables: str) -> list[NamedTable]:
    return [NamedTable(number, "public", table) for number, table in enumerate(tables)]


def connect(dsn: str) -> Connection:
    return connections.connect(dsn, "test", settings=SETTINGS)


def test_few_are_counted_and_many_estimated(dsn: str) -> None:
    with connect(dsn) as connection:
        found = row_counts.count(connection, names("few", "many", "%o d", "none", "parted"), by_oid=False)
        assert found[0] == RowCount(5)
        assert found[2:4] == [RowCount(0), None]
        for each in (found[1], found[4]):
            assert each is not None
            assert each.estimated
            assert each.rows == pytest.approx(EXACTLY + 500, rel=0.01)
        assert row_counts.count(connection, names("many"), by_oid=False, most=None) == [RowCount(EXACTLY + 500)]
        row = connection.execute("select 'public.few'::regclass::oid::bigint").fetchone()
        assert row is not None
        renamed = [NamedTable(row[0], "other", "name")]
        assert row_counts.count(connection, renamed, by_oid=True) == [RowCount(5)]


def test_a_table_that_is_locked_leaves_the_others_their_counts(dsn: str) -> None:
    with psycopg.connect(dsn) as holder, connect(dsn) as connection:
        holder.execute("lock table few in access exclusive mode")
        connection.execute("set lock_timeout = '50ms'")
        assert row_counts.count(connection, names("few", "%o d"), by_oid=False) == [None, RowCount(0)]


def test_a_database_that_is_away_says_so_and_comes_back(dsn: str) -> None:
    there = threading.Event()

    def come() -> Connection:
        return connect(dsn if there.is_set() else "host=/nowhere")

    counting = RowCounter("few", come, by_oid=False)
    try:
        assert eventually(lambda: counting.last_counts(names("few")))[0] == {}
        assert "/nowhere" in eventually(lambda: counting.last_counts(names("few"))[1] or "")
        there.set()
        eventually(lambda: counting.last_counts(names("few")) == ({0: RowCount(5)}, None))
    finally:
        counting.end()
