"""`pipeline demo --followers`: a Postgres for each, one of which is killed meanwhile; in the end all are compared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

import pipeline
from pipeline.demo import demo_followers
from pipeline.demo.demo_followers import TableTotals
from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures.postgres import Cluster

pytestmark = pytest.mark.timeout(300)


def demo(data_dir: Path, folder: Path, *arguments: str) -> str:
    """What it prints; it must end well."""
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "demo", "--data-dir", str(data_dir), *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(pipeline.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.long
def test_all_databases_are_equal_in_the_end_and_again_in_the_next_demo(server_directory: Path, tmp_path: Path) -> None:
    data_dir = server_directory.parent / "demo"
    for _ in range(2):
        output = demo(data_dir, tmp_path, "--followers", "3", "--seconds", "8")
        assert "4 databases are equal" in output
        for said in (
            "shop.visits is truncated",
            "follower-3 is killed",
            "shop.visits gets a column",
            "a column of shop.visits is renamed",
            "follower-3 is started again",
        ):
            assert said in output
        clusters = [EmbeddedServer(data_dir / "followers" / f"follower-{number}") for number in (1, 2, 3)]
        assert not any(each.running() for each in [*clusters, EmbeddedServer(data_dir / "postgres")])
    assert _owners(clusters[2]) == [("pipeline_follower",)]
    output = demo(data_dir, tmp_path, "--seconds", "2")
    assert "every change arrived once, in order" in output, "followers that are gone are no trouble for the next demo"


def _owners(server: EmbeddedServer) -> list[tuple[object, ...]]:
    server.start()
    try:
        with psycopg.connect(server.dsn("shop")) as connection:
            return connection.execute("select distinct tableowner from pg_tables where schemaname = 'shop'").fetchall()
    finally:
        server.stop()


def test_a_row_that_differs_is_another_sum(cluster: Cluster) -> None:
    """What the verdict relies on."""
    tables = ("customers", "stock", "orders", "order_lines", "visits")
    with cluster.database("summed") as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create schema shop")
        for table in tables:
            connection.execute(f"create table shop.{table} (id int, name text)".encode())
        assert demo_followers.sums(dsn) == dict.fromkeys(tables, TableTotals(0, ""))
        seen = set[TableTotals]()
        for statement in (
            "insert into shop.stock values (1, 'a'), (2, null)",
            "update shop.stock set name = '' where id = 2",
            "update shop.stock set id = 3 where id = 2",
            "insert into shop.stock values (3, '')",
            "delete from shop.stock where ctid = (select max(ctid) from shop.stock)",
        ):
            connection.execute(statement.encode())
            seen.add(demo_followers.sums(dsn)["stock"])
        assert len(seen) == 4, "the last one is as before the one before it"
