"""Partitions that join and leave without an event: the server finds them when it looks at the source's catalog."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.followers.running import following, joined_partitions
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.following import oid
from tests.fixtures.partitions import divided, is_partition, look, settle
from tests.fixtures.postgres import Cluster
from tests.fixtures.schema_changes import Changed
from tests.fixtures.stage import Stage, databases
from tests.fixtures.waiting import eventually

DETACH = "alter table $t detach partition $t_a"
JOIN = (
    "create table $t_d (id int, area text, note text, primary key (area, id))",
    "insert into $t_d select n, 'd', 'x' from generate_series(1, 3) n",
    "alter table $t attach partition $t_d for values in ('d')",
)


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
    monkeypatch.setattr(joined_partitions, "LOOK_SECONDS", 0.1)


def join(changed: Changed) -> None:
    """A table of three rows is attached, which no event says."""
    for each in JOIN:
        changed.stage.run(changed.named(each))
    publish_new_tables(changed.stage.config)


def leave(changed: Changed, what: str = "detached") -> None:
    """Partition `t_a` leaves, and the server looks."""
    number = oid(changed.stage, changed.named("$t_a"))
    changed.run(DETACH if what == "detached" else "drop table $t_a")
    look(changed, what, "$t_a", number)


def note(changed: Changed) -> tuple[str | None, str | None]:
    """What `show` says of the table, while it is followed."""
    found = changed.made.table(changed.t)
    assert (changed.made.found.state, found.state) == ("following", "following")
    return found.reason, found.remedy


@pytest.mark.parametrize("copy", ["none", pytest.param("source", marks=pytest.mark.long)])
def test_a_follower_that_stopped_before_a_partition_was_seen_goes_on(stage: Stage, cluster: Cluster, copy: str):
    with divided(stage, cluster, copy=copy) as changed, changed.made.running():
        changed.become_equal()
        join(changed)
        changed.run("update $t set note = 'y' where id = 2")
        reason, remedy = changed.stopped()
        assert "lacks the row" in reason
        assert "resync" in remedy
        found = look(changed, "attached", "$t_d", reads="waiting")
        says = "gets the rows of a partition that was attached at the source"
        eventually(lambda: changed.made.table(changed.t).reason == says)
        assert changed.made.table(changed.t).state == "copying"
        changed.run("update $t set note = 'z' where id = 1 and area = 'd'", "delete from $t where id = 3")
        changed.become_equal()
        settle(changed, found)
        eventually(lambda: note(changed) == (None, None))
        changed.there("delete from $t where id = 2")
        changed.run("update $t set note = 'v' where id = 2")
        assert "lacks the row" in changed.stopped()[0]


@pytest.mark.parametrize("reads", [None, pytest.param("failed", marks=pytest.mark.long)])
def test_one_whose_rows_nothing_reads_stays_stopped(stage: Stage, cluster: Cluster, reads: str | None):
    with divided(stage, cluster) as changed, changed.made.running():
        changed.become_equal()
        join(changed)
        look(changed, "attached", "$t_d", reads=reads)
        changed.run("update $t set note = 'y' where id = 2")
        assert changed.stopped()[1] == changed.named("`pipeline followers resync $name public.$t`")
        eventually(lambda: is_partition(changed, "$t_d"))


@pytest.mark.parametrize("what", ["detached", "dropped"])
@pytest.mark.parametrize("when", ["at the head", pytest.param("from far behind", marks=pytest.mark.long)])
def test_a_partition_that_leaves(stage: Stage, cluster: Cluster, when: str, what: str):
    with divided(stage, cluster) as changed:
        if when == "from far behind":
            changed.run("insert into $t values (2, 'a', 'y')", "update $t set note = 'z'")
            leave(changed, what)
            changed.stage.arrive()
        with changed.made.running():
            if when == "at the head":
                changed.become_equal()
                changed.run("insert into $t values (2, 'a', 'y')", "update $t set note = 'z'")
                leave(changed, what)
            eventually(lambda: not is_partition(changed, "$t_a"))
            changed.become_equal()
            query = changed.named("select id, note from $t_a order by id").encode()
            assert changed.made.look.execute(query).fetchall() == [(1, "z"), (2, "z")]
            if what == "detached":
                eventually(lambda: note(changed) == (None, None))
                return
            said = "public.$t_a is a separate table here, and was a partition that the source dropped"
            remedy = "`drop table public.$t_a` there, if no user needs it"
            eventually(lambda: note(changed) == (changed.named(said), changed.named(remedy)))
            changed.there("drop table $t_a")
            eventually(lambda: note(changed) == (None, None))


def test_with_ddl_stop_it_stays_and_the_statement_is_named(stage: Stage, cluster: Cluster):
    with divided(stage, cluster, ddl="stop") as changed, changed.made.running():
        changed.become_equal()
        leave(changed)
        changed.run("insert into $t_a values (7, 'a', 'x')")  # a row of its own table, which is no new one there
        said = "public.$t_a is no longer a partition at the source, and --ddl is stop"
        remedy = "`alter table public.$t detach partition public.$t_a` there"
        eventually(lambda: note(changed) == (changed.named(said), changed.named(remedy)))
        assert is_partition(changed, "$t_a")
        changed.there(DETACH)
        eventually(lambda: note(changed) == (None, None))
        changed.become_equal()


def test_a_partition_that_takes_the_place_of_another(stage: Stage, cluster: Cluster):
    """The first row of the new one comes before anybody has looked."""
    with divided(stage, cluster) as changed, changed.made.running():
        changed.become_equal()
        number = oid(stage, changed.named("$t_a"))
        look(changed, "attached", "$t_a")
        stage.run(changed.named(f"{DETACH}; create table $t_b partition of $t for values in ('a', 'b')"))
        publish_new_tables(stage.config)
        changed.run("insert into $t values (5, 'a', 'x')")
        changed.become_equal()
        with stage.log.transaction():
            look(changed, "detached", "$t_a", number)
            look(changed, "attached", "$t_b")
        changed.run("update $t set note = 'y'")
        changed.become_equal()
        assert (is_partition(changed, "$t_a"), is_partition(changed, "$t_b")) == (False, True)


@pytest.mark.parametrize("when", ["at once", pytest.param("later", marks=pytest.mark.long)])
def test_another_partition_gets_the_name_of_one_that_was_dropped(stage: Stage, cluster: Cluster, when: str):
    with divided(stage, cluster) as changed, changed.made.running():
        changed.become_equal()
        number = oid(stage, changed.named("$t_a"))
        if when == "later":
            leave(changed, "dropped")
            eventually(lambda: not is_partition(changed, "$t_a"))
        drop = "drop table $t_a; " if when == "at once" else ""
        stage.run(changed.named(f"{drop}create table $t_a partition of $t for values in ('a')"))
        publish_new_tables(stage.config)
        changed.run("insert into $t values (5, 'a', 'x')")
        with stage.log.transaction():
            if when == "at once":
                look(changed, "dropped", "$t_a", number)
            look(changed, "attached", "$t_a")
        changed.become_equal_in_time()
        assert is_partition(changed, "$t_a")
        if when == "later":
            said = f"public.$t_a_{number} is a separate table here, and was a partition that the source dropped"
            eventually(lambda: note(changed)[0] == changed.named(said))


@pytest.mark.long
def test_a_partition_that_is_used_is_detached_later(stage: Stage, cluster: Cluster):
    with divided(stage, cluster) as changed, changed.made.running():
        changed.become_equal()
        with changed.made.look.transaction():
            changed.there("select from $t_a")
            leave(changed)
            said = changed.named("a change of partitions of public.$t waits for pid ")
            eventually(lambda: said in (changed.made.table(changed.t).reason or ""))
            changed.run("insert into $t_c values (8, 'c', 'x')")
            changed.become_equal_in_time(changed.named("$t_c"))
        eventually(lambda: not is_partition(changed, "$t_a"))
        changed.become_equal_in_time()


@pytest.mark.long
def test_a_partition_of_a_partition_goes_with_it(stage: Stage, cluster: Cluster):
    with divided(stage, cluster) as changed, changed.made.running():
        changed.become_equal()
        changed.run(
            "create table $t_e partition of $t for values in ('e') partition by range (id);"
            "create table $t_e1 partition of $t_e for values from (0) to (10);"
            "create table $t_e2 partition of $t_e for values from (10) to (20)",
            "insert into $t values (1, 'e', 'x'), (11, 'e', 'x')",
        )
        changed.become_equal()
        changed.run("alter table $t detach partition $t_e")
        for leaf in ("$t_e1", "$t_e2"):
            look(changed, "detached", leaf)
        eventually(lambda: not is_partition(changed, "$t_e"))
        changed.become_equal()
        assert is_partition(changed, "$t_e1")
        assert is_partition(changed, "$t_e2")


@pytest.mark.long
def test_a_truncate_of_a_partition_that_had_no_event(stage: Stage, cluster: Cluster):
    with divided(stage, cluster) as changed, changed.made.running():
        changed.run("truncate $t_a", "insert into $t values (9, 'a', 'x')")
        changed.become_equal()
        assert is_partition(changed, "$t_a")


@pytest.mark.long
@pytest.mark.parametrize("is_there", [True, False], ids=["kept", "dropped there"])
def test_a_partition_that_returns_has_the_rows_that_it_had(stage: Stage, cluster: Cluster, is_there: bool):
    """The log gets only what differs from before it left."""
    with divided(stage, cluster) as changed, changed.made.running():
        changed.become_equal()
        leave(changed)
        eventually(lambda: not is_partition(changed, "$t_a"))
        if not is_there:
            changed.there("drop table $t_a")
        changed.stage.run(changed.named("alter table $t attach partition $t_a for values in ('a')"))
        publish_new_tables(stage.config)
        look(changed, "returned", "$t_a", reads="waiting")
        # Not any copy: a partition that was detached may be copied as its own table.
        root = oid(stage, changed.t)
        eventually(lambda: is_partition(changed, "$t_a") if is_there else root in changed.made.copies())
        changed.run("update $t set note = 'y'")
        changed.become_equal()
