"""Partitions that the source makes, attaches and detaches: a follower's tables are divided likewise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.followers.operating import resync
from pipeline.followers.running import copier, following
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.partitions import PARTED, divided, divided_tables, is_partition
from tests.fixtures.postgres import Cluster
from tests.fixtures.schema_changes import become_equal
from tests.fixtures.stage import Stage, databases
from tests.fixtures.waiting import eventually


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    with databases(cluster, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.start()
        yield stage


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's process looks often: a test waits for it."""
    monkeypatch.setattr(following, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(following, "REPORT_SECONDS", 0.05)
    monkeypatch.setattr(following, "FIRST_DELAY", 0.1)
    monkeypatch.setattr(copier, "REST_SECONDS", 0.05)


MADE = {
    "a partition": ("create table $t_b partition of $t for values in ('b')", ["$t_b"]),
    "a default one": ("create table $t_b partition of $t default", ["$t_b"]),
    "nested ones": (
        "create table $t_b partition of $t for values in ('b') partition by range (id);"
        "create table $t_b1 partition of $t_b for values from (0) to (10);"
        "create table $t_b2 partition of $t_b default",
        ["$t_b", "$t_b1"],
    ),
}


@pytest.mark.parametrize("when", ["at the head", "from far behind"])
def test_partitions_that_are_made(stage: Stage, cluster: Cluster, when: str):
    with divided_tables(stage, cluster, len(MADE)) as several:
        if when == "from far behind":
            for changed, (ddl, _) in zip(several, MADE.values(), strict=True):
                changed.run(ddl, "insert into $t values (1, 'b', 'x')", "update $t set note = 'y'")
            stage.arrive()
        with several[0].made.running():
            if when == "at the head":
                become_equal(several)
            for changed, (ddl, _) in zip(several, MADE.values(), strict=True):
                if when == "at the head":
                    changed.run(ddl, "insert into $t values (1, 'b', 'x')")
                changed.run("update $t set note = 'z'", "update $t set area = 'b', id = 2 where area = 'a'")
            become_equal(several)
            for changed, (kind, (_, names)) in zip(several, MADE.items(), strict=True):
                assert all(is_partition(changed, name) for name in names), kind


def test_one_with_another_column_in_the_same_change(stage: Stage, cluster: Cluster):
    with divided(stage, cluster) as changed, changed.made.running():
        changed.become_equal()
        changed.run(
            "alter table $t add more int; create table $t_b partition of $t for values in ('b');"
            "insert into $t values (1, 'b', 'x', 1)"
        )
        changed.become_equal()
        assert is_partition(changed, "$t_b")


@pytest.mark.parametrize(
    ("copy", "when"), [("none", "at the head"), ("none", "from far behind"), ("source", "at the head")]
)
def test_a_table_that_is_attached_and_detached(stage: Stage, cluster: Cluster, copy: str, when: str):
    attach = (
        "update $t_c set note = 'before'",
        "alter table $t attach partition $t_c for values in ('c')",
        "update $t set note = 'y'",
    )
    detach = ("alter table $t detach partition $t_c", "update $t_c set note = 'v'", "update $t set note = 'w'")
    with divided(stage, cluster, copy=copy) as changed:
        if when == "from far behind":
            changed.run(*attach)
            changed.stage.arrive()
        with changed.made.running():
            if when == "at the head":
                changed.become_equal(changed.t, changed.named("$t_c"))
                changed.run(*attach)
            changed.become_equal(changed.t, changed.named("$t_c"))
            assert is_partition(changed, "$t_c")
            changed.run(*detach)
            publish_new_tables(stage.config)
            changed.become_equal(changed.t, changed.named("$t_c"))
            assert not is_partition(changed, "$t_c")
            changed.run("insert into $t_c values (7, 'z', 'own')", "delete from $t")
            changed.become_equal(changed.t, changed.named("$t_c"))


def test_a_partition_that_is_detached_is_a_table_of_its_own(stage: Stage, cluster: Cluster):
    with divided(stage, cluster) as changed, changed.made.running():
        changed.become_equal()
        changed.run("alter table $t detach partition $t_a", "update $t_a set note = 'own'")
        publish_new_tables(stage.config)
        changed.run("update $t_a set note = note || '!'")
        changed.become_equal_in_time(changed.named("$t_a"))
        assert not is_partition(changed, "$t_a")
        changed.become_equal(changed.t, changed.named("$t_a"))


def test_one_that_was_attached_for_a_while_that_is_over(stage: Stage, cluster: Cluster):
    """Its bounds are unknown then."""
    with divided(stage, cluster) as changed:
        changed.run("alter table $t attach partition $t_c for values in ('c')", "update $t set note = 'y'")
        changed.stage.arrive()
        changed.run("alter table $t detach partition $t_c")
        with changed.made.running():
            assert changed.stopped() == (
                changed.named(
                    "table public.$t of the follower stops: the source attached public.$t_c to it, and no longer knows"
                    " for which values"
                ),
                changed.named(
                    "`alter table public.$t attach partition public.$t_c for values …` there; it is tried again by"
                    " itself"
                ),
            )
            changed.there("alter table $t attach partition $t_c for values in ('c')")
            changed.run("update $t_c set note = 'own'")
            changed.become_equal_in_time(changed.t, changed.named("$t_c"))


def test_one_that_was_made_and_dropped_since(stage: Stage, cluster: Cluster):
    with divided(stage, cluster) as changed:
        changed.run("create table $t_b partition of $t for values in ('b')", "insert into $t values (1, 'b', 'x')")
        changed.stage.arrive()
        changed.run("drop table $t_b")
        with changed.made.running():
            assert changed.stopped() == (
                changed.named(
                    "table public.$t of the follower stops: it has no partition for a row, and the source no longer has"
                    " one"
                ),
                changed.named(
                    "`create table … partition of public.$t for values …` there; it is tried again by itself"
                ),
            )
            changed.there("create table $t_b partition of $t for values in ('b')")
            eventually(lambda: changed.made.found.state == "following")
            assert changed.made.look.execute(changed.named("table $t_b").encode()).fetchall() == [(1, "b", "x")]


def test_with_ddl_stop_it_says_what_to_run(stage: Stage, cluster: Cluster):
    with divided(stage, cluster, ddl="stop") as changed, changed.made.running():
        create = "create table $t_b partition of $t for values in ('b')"
        changed.run(create, "insert into $t values (1, 'b', 'x')")
        reason, remedy = changed.stopped()
        assert reason == changed.named(
            "table public.$t of the follower stops: the source made public.$t_b, a partition of public.$t, and --ddl is"
            " stop"
        )
        assert remedy.startswith(
            changed.named("""`create table "public"."$t_b" partition of "public"."$t" FOR VALUES IN ('b')` there""")
        )
        changed.there(create)
        changed.become_equal_in_time()


@pytest.mark.parametrize(
    "there",
    [
        "create table $t (id int, area text, note text, primary key (area, id))",
        "create table $t (id int, area text, note text, primary key (area, id)) partition by list (area);"
        "create table $t_all partition of $t default",
        "create table $t (id int, area text, note text, primary key (area, id)) partition by range (id);"
        "create table $t_all partition of $t for values from (0) to (1000)",
    ],
    ids=["not", "by a default one", "by another column"],
)
def test_a_follower_that_is_divided_otherwise(stage: Stage, cluster: Cluster, there: str):
    with divided(stage, cluster, there, PARTED[2]) as changed, changed.made.running():
        changed.become_equal()
        changed.run("create table $t_b partition of $t for values in ('b')", "insert into $t values (3, 'b', 'x')")
        changed.run("update $t set note = 'y'")
        changed.become_equal()
        resync.resync(stage.log, changed.made.name, [f"public.{changed.t}"])
        changed.become_equal_in_time()


def test_a_copy_has_room_for_all_partitions(stage: Stage, cluster: Cluster):
    with divided(stage, cluster) as changed, changed.made.running():
        changed.become_equal()
        resync.resync(stage.log, changed.made.name, [f"public.{changed.t}"])
        changed.run("create table $t_b partition of $t for values in ('b')")
        eventually(lambda: changed.made.table(changed.t).state == "following")
        changed.run("insert into $t values (1, 'b', 'x')")
        resync.resync(stage.log, changed.made.name, [f"public.{changed.t}"])
        changed.become_equal_in_time()
        assert is_partition(changed, "$t_b")
