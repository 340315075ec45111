"""A follower that has what the log lost stops, says how its tables are copied again, and goes on from there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.followers.operating import resync
from pipeline.log import jumps
from pipeline.log.table import DEFAULT
from pipeline.postgres import connections
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.copying import Copying, copying
from tests.fixtures.postgres import Cluster
from tests.fixtures.shuffling import now
from tests.fixtures.stage import Stage, databases
from tests.fixtures.waiting import eventually
from tests.integration.followers.copying.test_replacements import begun, prompt

__all__ = ["prompt"]
THINGS = "create table things (id int primary key, name text)"
AHEAD = "update pipeline_follower.position set seq = seq + 100"
LOST = {
    "ahead": ([AHEAD], "the log has no events between seq"),
    "in a jump": ([AHEAD], "the log has no events between seq"),
    "another event": (
        ["update pipeline_follower.position set committed_at = committed_at - interval '1 ms'"],
        "the log has another event there",
    ),
}


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    with databases(cluster, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.run(THINGS)
        stage.start()
        publish_new_tables(stage.config)
        yield stage


@pytest.fixture
def things(stage: Stage, cluster: Cluster) -> Iterator[Copying]:
    with copying(stage, cluster, THINGS, tables=["things"], copy="none") as made:
        stage.run("truncate things", "insert into things values (1, 'first')")
        stage.arrive()
        yield made


def jump(stage: Stage) -> None:
    with connections.connect(stage.config.database, "pipeline database") as connection:
        jumps.jump(connection, [DEFAULT], now, "test")


@pytest.mark.parametrize("how", LOST)
def test_it_stops_until_all_tables_are_copied_again(stage: Stage, things: Copying, how: str):
    with things.running():
        begun(things)
        things.become_equal()
    statements, reason = LOST[how]
    for statement in statements:
        things.look.execute(statement.encode())
    if how == "in a jump":
        jump(stage)
        stage.run("insert into things values (2, 'behind the jump')")
        stage.arrive()
    things.look.execute("insert into things values (9, 'that the log lost')")
    with things.running():
        eventually(lambda: things.found.state == "stopped")
        found = things.found
        assert reason in str(found.reason)
        assert f"`pipeline followers resync {things.name} '*'`" in str(found.remedy)
        resync.resync(stage.log, things.name, ["*"])
        stage.run("insert into things values (3, 'after')")
        things.become_equal()


def test_a_follower_without_tables_moves(stage: Stage, cluster: Cluster):
    with copying(stage, cluster, THINGS, tables=[], copy="none", patterns=("none.*",)) as made:
        with made.running():
            begun(made)
        jump(stage)
        made.look.execute(AHEAD.encode())
        assert resync.resync(stage.log, made.name, ["*"]).tables == []
        with made.running():
            stage.run("update things set name = 'again'")
            made.become_equal()
