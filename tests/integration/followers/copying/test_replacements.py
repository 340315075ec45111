"""A table is copied anew while the others follow the log: exactly, and nobody sees half of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.followers.running import copier, following
from pipeline.operate import resync_follower
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.copying import WRITTEN, Copying, copying
from tests.fixtures.postgres import Cluster
from tests.fixtures.stage import Stage, databases
from tests.fixtures.waiting import eventually

TABLES = (
    "create table things (id int primary key, name text, code int unique)",
    "create table others (id int primary key)",
)


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    with databases(cluster, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.run(*WRITTEN, *TABLES)
        stage.start()
        publish_new_tables(stage.config)
        yield stage


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's process looks often: a test waits for it."""
    monkeypatch.setattr(following, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(following, "REPORT_SECONDS", 0.05)
    monkeypatch.setattr(following, "FIRST_DELAY", 0.1)
    monkeypatch.setattr(copier, "FIRST_DELAY", 0.1)
    monkeypatch.setattr(copier, "REST_SECONDS", 0.05)


@pytest.fixture
def things(stage: Stage, cluster: Cluster) -> Iterator[Copying]:
    """One that follows `things`, of which it has rows and a column of its own, and `others`."""
    stage.run("truncate things, others", "insert into things select n, 'source', n + 100 from generate_series(1, 50) n")
    stage.arrive()
    with copying(
        stage,
        cluster,
        "create table things (own text default 'none', code int unique, name text, id int primary key)",
        TABLES[1],
        "insert into things (id, name, code, own) select n, 'source', n + 100, 'kept' from generate_series(1, 50) n",
        tables=["things", "others"],
        copy="none",
    ) as made:
        yield made


def want(made: Copying, *tables: str) -> None:
    resync_follower.resync(made.stage.log, made.name, [f"public.{table}" for table in tables])


def test_it_becomes_equal_and_keeps_columns_of_its_own(stage: Stage, things: Copying):
    with things.running():
        things.become_equal()
        things.look.execute("delete from things where id <= 5")
        things.look.execute("update things set name = 'other', own = 'touched' where id = 6")
        things.look.execute("insert into things (id, name) values (1000, 'theirs')")
        want(things, "things")
        stage.run("update things set name = 'changed' where id = 7", "insert into others values (1)")
        things.become_equal()
        eventually(lambda: things.table("things").state == "following")
        owned = dict(things.look.execute("select id, own from things where id < 9").fetchall())
        assert owned == {**dict.fromkeys(range(1, 6), "none"), 6: "touched", 7: "kept", 8: "kept"}
