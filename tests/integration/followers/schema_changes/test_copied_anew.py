"""Tables that DDL has rewritten, that are new, or of which it is not clear what they have become, are copied again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pipeline.capture.schema_history import rewrites
from pipeline.followers.applying import table_versions
from pipeline.followers.copying import replacements
from pipeline.followers.operating import resync
from pipeline.followers.running import following
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.copying import copying
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.schema_changes import Changed, become_equal, become_equal_in_time, followed_tables
from tests.fixtures.stage import Stage, databases
from tests.fixtures.waiting import eventually
from tests.integration.followers.schema_changes import cases


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
    monkeypatch.setattr(replacements, "LOCK_TIMEOUT", "200ms")


@pytest.fixture
def several(stage: Stage, cluster: Cluster) -> Iterator[list[Changed]]:
    """Tables of one follower, for each rewrite one, of some rows."""
    with followed_tables(stage, cluster, len(cases.REWRITES)) as made:
        for changed in made:
            changed.run("insert into $t select n, 'a' || n, 'b', 'n' from generate_series(2, 4) n")
        stage.arrive()
        yield made


def test_rewritten_tables(several: list[Changed]):
    made = several[0].made
    with made.running():
        become_equal(several)
        for changed, change in zip(several, cases.REWRITES.values(), strict=True):
            changed.run(*change.statements)
        become_equal_in_time(several)
        assert len(made.copies()) == len(several)
        for changed in several:
            changed.run("insert into $t (id) values (100)", "delete from $t where id = 3")
        become_equal_in_time(several)


def test_rewritten_tables_from_far_behind(stage: Stage, several: list[Changed]):
    for changed, change in zip(several, cases.REWRITES.values(), strict=True):
        changed.run(*change.statements)
        changed.run("insert into $t (id) values (100)", "delete from $t where id = 3")
    stage.arrive()
    with several[0].made.running():
        become_equal_in_time(several)


EMPTIED = {
    "another type": "alter table $t alter n type int using length(n); insert into $t values (5, 'a5', 'b5', 5)",
    "rows that are known by their values": "alter table $t alter n type text using 'new ' || n; delete from $t",
}


def test_a_table_that_was_rewritten_and_emptied(stage: Stage, cluster: Cluster):
    """Its rewrite is found when it has no rows any more; the follower still has rows of before."""
    with followed_tables(stage, cluster, len(EMPTIED)) as several, several[0].made.running():
        for changed in several:
            changed.run("alter table $t drop constraint $t_pkey, replica identity full")
            changed.run("insert into $t values (2, 'a2', 'b2', 'n2')")
        become_equal_in_time(several)
        for changed, emptied in zip(several, EMPTIED.values(), strict=True):
            changed.run(f"{emptied}; truncate $t")
        become_equal_in_time(several)
        for changed in several:
            changed.run("insert into $t (id) values (7)", "delete from $t where id = 6")
        become_equal_in_time(several)


def test_a_rewrite_that_was_settled_before_the_follower_came_there(changed: Changed):
    """The log has all rows again, later: values of before do not become ones of the new type."""
    with changed.made.running():
        changed.become_equal_in_time()
    changed.run("alter table $t alter n type int using length(n)", "update $t set n = n")
    changed.stage.arrive()
    log = changed.stage.log
    for each in rewrites.read_unsettled(log):
        rewrites.settle(log, each)
    with changed.made.running():
        changed.become_equal_in_time()
        changed.run("update $t set n = 5")
        changed.become_equal_in_time()


def test_a_column_that_came_after_the_last_copy(changed: Changed):
    """It is renamed, or dropped, in the transaction that rewrites the table again."""
    with changed.made.running():
        eventually(lambda: changed.made.found.state == "following")
        resync.resync(changed.stage.log, changed.made.name, [f"public.{changed.t}"])
        eventually(lambda: changed.is_copied)
        changed.run("alter table $t add c int, add d int", "update $t set c = 1, d = 2")
        changed.become_equal_in_time()
        changed.run("alter table $t alter n type int using 7, drop c; alter table $t rename d to e")
        changed.run("update $t set e = 3")
        changed.become_equal_in_time()


NEW = "create table $new (id int primary key, a text); create index on $new (a)"


def test_a_new_table_is_made_and_copied(changed: Changed):
    new = unique("new")
    with changed.made.running():
        changed.run(NEW.replace("$new", new), f"insert into {new} values (1, 'before it was published')")
        publish_new_tables(changed.stage.config)
        changed.run(f"insert into {new} values (2, 'after')", "insert into $t values (2)")
        changed.become_equal_in_time(changed.t, new)
        assert changed.made.table(new).state == "following"
        changed.run(f"update {new} set a = a || '!'", f"delete from {new} where id = 1")
        changed.become_equal(changed.t, new)
        indexes = f"select count(*) from pg_index where indrelid = '{new}'::regclass".encode()
        assert changed.made.look.execute(indexes).fetchall() == [(2,)]


@pytest.mark.parametrize("changed", [{"patterns": ("public.t*", "public.wanted_*")}], indirect=True)
def test_a_new_table_that_is_not_wanted(changed: Changed):
    wanted, other = unique("wanted"), unique("other")
    with changed.made.running():
        changed.run(*(NEW.replace("$new", name) for name in (wanted, other)))
        publish_new_tables(changed.stage.config)
        changed.run(*(f"insert into {name} values (1, 'new')" for name in (other, wanted)))
        changed.become_equal_in_time(changed.t, wanted)
        there = changed.made.look.execute("select to_regclass(%s)", [f"public.{other}"]).fetchone()
        assert there == (None,)


def test_a_table_that_is_dropped_and_made_again(changed: Changed):
    changed.there("alter table $t add own text default 'own'", "create view looks as select b from $t")
    with changed.made.running():
        changed.run("drop table $t", "create table $t (id bigint primary key, a varchar(7), b text, d int)")
        publish_new_tables(changed.stage.config)
        changed.run("insert into $t values (1, 'again', 'b', 1), (7, 'another', 'b', null)")
        changed.become_equal_in_time()
        changed.run("update $t set a = 'x' where id = 7")
        changed.become_equal()
        assert [table.table_name for table in changed.made.found.table_states] == [changed.t]


def test_a_column_of_a_partitioned_table_that_may_be_another(stage: Stage, cluster: Cluster):
    table = unique("parted")
    statements = (
        f"create table {table} (id int primary key, a text) partition by range (id)",
        f"create table {table}_1 partition of {table} for values from (0) to (100)",
        f"create table {table}_2 (a text, id int primary key)",
        f"alter table {table} attach partition {table}_2 for values from (100) to (200)",
    )
    stage.run(*statements)
    publish_new_tables(stage.config)
    stage.run(f"insert into {table} values (1, 'a1'), (101, 'a101')")
    with copying(stage, cluster, *statements, tables=[table]) as made, made.running():
        changed = Changed(stage, made, table)
        changed.become_equal_in_time()
        before = made.copies()
        changed.run(*cases.PARTITIONED.statements)
        changed.become_equal_in_time()
        assert (made.copies() != before) == cases.PARTITIONED.copied
        changed.run("alter table $t add c int", "update $t set c = 1", "alter table $t drop b", "update $t set c = 2")
        changed.become_equal_in_time()


@pytest.mark.parametrize("kind", cases.WAITS)
def test_a_copy_waits_for_what_is_in_its_way(changed: Changed, kind: str):
    waits = cases.WAITS[kind]
    changed.there(*waits.there)
    with changed.made.running():
        changed.run(*waits.statements)
        changed.stage.arrive()

        def are_said() -> None:
            table = changed.made.table(changed.t)
            assert (table.state, table.reason, table.remedy) == (
                "stopped",
                changed.named(waits.reason),
                changed.named(waits.remedy),
            )

        eventually(are_said, 60)
        assert changed.made.look.execute("select n from looks").fetchall() == [("n1",)]
        changed.there(*waits.repaired)
        changed.become_equal_in_time()


def test_a_copy_in_a_form_that_the_log_does_not_have(stage: Stage, cluster: Cluster):
    """DDL is in the log with the first change after it: a table that is at rest has not had one."""
    changes = ("rename a to c", "drop a", "rename id to number")
    with followed_tables(stage, cluster, len(changes)) as several, several[0].made.running():
        made = several[0].made
        become_equal(several)
        for changed, ddl in zip(several, changes, strict=True):
            changed.run(f"alter table $t {ddl}")
        resync.resync(stage.log, made.name, [f"public.{changed.t}" for changed in several])
        become_equal_in_time(several)
        assert len(made.copies()) == len(several)
        for changed in several:
            changed.run("alter table $t add d int", "update $t set b = 'x', d = 1")
        become_equal_in_time(several)
        for changed in several:
            changed.run("update $t set d = 2")
        become_equal_in_time(several)


def test_a_copy_of_which_the_form_is_taken_back(changed: Changed):
    with changed.made.running():
        changed.become_equal()
        changed.run("alter table $t rename a to c")
        resync.resync(changed.stage.log, changed.made.name, [f"public.{changed.t}"])
        changed.become_equal_in_time()
        changed.run("alter table $t rename c to a", "update $t set a = 'x'")
        changed.become_equal_in_time()


REWRITE = "alter table $t alter n type int using length(n)"
RENAMES = {
    "a name": ("alter table $t rename to $t_new",),
    "a schema": ("create schema $t_new", "alter table $t set schema $t_new"),
    "a column": ("alter table $t rename a to c",),
    "a dropped column": ("alter table $t drop b",),
    "a second rewrite and a name": (
        "alter table $t alter id type bigint",
        "alter table $t rename to $t_new",
        "alter table $t_new alter id type numeric",
    ),
}
SOME = [pytest.param(name, marks=() if name.startswith("a second") else pytest.mark.long) for name in RENAMES]
NEW_NAMES = {"a schema": "$t_new.$t", "a name": "$t_new", "a second rewrite and a name": "$t_new"}


@contextmanager
def copy_held_up(changed: Changed) -> Iterator[None]:
    """Inside, a copy of the table has been read, and cannot take its place."""
    with psycopg.connect(changed.made.look.info.dsn) as holder:
        holder.execute(changed.named("lock table $t in access share mode").encode())
        changed.run(REWRITE, "insert into $t (id, n) values (2, 2)")
        changed.stage.arrive()

        def is_held_up() -> None:
            table = changed.made.table(changed.t)
            assert "which uses it at the follower" in (table.reason or "")

        eventually(is_held_up, 60)
        yield


@pytest.mark.parametrize("renamed", SOME)
def test_a_rewritten_table_gets_the_name_and_columns_of_its_copy(changed: Changed, renamed: str) -> None:
    name = changed.named(NEW_NAMES.get(renamed, "$t"))
    with changed.made.running():
        changed.become_equal()
        changed.run(REWRITE, *RENAMES[renamed], f"insert into {name} (id, n) values (2, 2)")
        changed.become_equal_in_time(name)
        changed.run(f"update {name} set n = 3")
        changed.become_equal_in_time(name)


@pytest.mark.long
def test_a_rewritten_table_gets_the_name_of_the_same_transaction(changed: Changed) -> None:
    name = changed.named("$t_new")
    with changed.made.running():
        changed.become_equal()
        changed.run(f"{REWRITE}; alter table $t rename to $t_new; insert into $t_new (id, n) values (2, 2)")
        changed.become_equal_in_time(name)


@pytest.mark.parametrize("renamed", SOME)
def test_a_table_gets_what_changed_while_it_was_copied(changed: Changed, renamed: str) -> None:
    name = changed.named(NEW_NAMES.get(renamed, "$t"))
    with changed.made.running():
        changed.become_equal()
        with copy_held_up(changed):
            changed.run(*RENAMES[renamed], f"insert into {name} (id, n) values (3, 3)")
            changed.stage.arrive()
        changed.become_equal_in_time(name)
        changed.run(f"update {name} set n = 4")
        changed.become_equal_in_time(name)


WITH_IT = "insert into $t_new (id, n) values (4, 'n4')"


@pytest.mark.parametrize("in_between", [(), (WITH_IT,)], ids=["without an event", "after an event"])
def test_a_name_that_is_taken_back_after_a_copy(changed: Changed, in_between: tuple[str, ...]) -> None:
    new = changed.named("$t_new")
    with changed.made.running():
        changed.become_equal()
        changed.run("alter table $t rename to $t_new")
        resync.resync(changed.stage.log, changed.made.name, [changed.named("public.$t")])
        changed.become_equal_in_time(new)
        changed.run(*in_between)
        changed.run("alter table $t_new rename to $t", "insert into $t (id, n) values (5, 'n5')")
        changed.become_equal_in_time()
        changed.run("alter table $t rename to $t_new", "update $t_new set n = 'n6'")
        changed.become_equal_in_time(new)


def test_a_name_that_is_taken_back_with_another_column(changed: Changed) -> None:
    with changed.made.running():
        changed.become_equal()
        changed.run("alter table $t rename to $t_new")
        resync.resync(changed.stage.log, changed.made.name, [changed.named("public.$t")])
        changed.become_equal_in_time(changed.named("$t_new"))
        changed.run("alter table $t_new rename to $t; alter table $t add c int", "insert into $t (id, c) values (5, 5)")
        changed.become_equal_in_time()


def test_only_the_last_version_of_a_place_counts(changed: Changed) -> None:
    log, found = changed.stage.log, changed.made.found
    [table] = found.table_states
    [version] = table_versions.all_versions(log, found.source_id, [table.table_oid])[table.table_oid]
    columns = "source_id, epoch, relation_oid, relation_schema, relation_name, table_oid, table_schema, {}"
    columns += ", replica_identity, columns, key_columns, unique_in_root, memberships, fingerprint, from_lsn, from_idx"
    query = f"insert into pipeline.relations ({columns}) select {columns} from pipeline.relations where id = %s"
    for name in ("'passing'", "table_name"):  # what a look at the catalog found, and a message after that
        given = query.replace("{}", "table_name", 1).replace("{}", name)
        log.execute(given.encode(), [version.id])
    versions = table_versions.all_versions(log, found.source_id, [table.table_oid])[table.table_oid]
    assert [(each.table_name, each.id > version.id) for each in versions] == [(changed.t, True)]


def test_names_that_are_exchanged_while_one_table_is_copied(stage: Stage, cluster: Cluster) -> None:
    with followed_tables(stage, cluster, 2) as made, made[0].made.running():
        become_equal(made)
        one, other = made
        with copy_held_up(one):
            one.run(
                f"alter table $t rename to $t_over; alter table {other.t} rename to $t;"
                f" alter table $t_over rename to {other.t}",
                "insert into $t values (7, 'was the other')",
                f"insert into {other.t} (id, n) values (8, 8)",
            )
            stage.arrive()
        become_equal_in_time(made)
        one.run("update $t set a = 'a'", f"update {other.t} set a = 'b'")
        become_equal_in_time(made)
