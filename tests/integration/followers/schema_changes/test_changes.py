"""DDL at the source reaches a follower's tables at its place in the log, or stops it there with what to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.followers.running import following
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.copying import copying
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.schema_changes import Changed
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


CHANGES = {
    "added": ["alter table $t add c int", "insert into $t (id, c) values (2, 5)"],
    "added twice in one transaction": [
        "insert into $t values (2, 'x'); alter table $t add c int; insert into $t (id, c) values (3, 5);"
        " alter table $t add d numeric(5, 2); insert into $t (id, c, d) values (4, 5, 1.5)",
    ],
    "dropped": ["alter table $t drop b", "update $t set a = 'a2'"],
    "dropped and added again": ["alter table $t drop b, add b int", "insert into $t (id, b) values (2, 5)"],
    "renamed": ["alter table $t rename a to c", "update $t set c = 'c2' where id = 1"],
    "exchanged": [
        "alter table $t rename a to c; alter table $t rename b to a; alter table $t rename c to b",
        "update $t set a = 'was b' where id = 1",
    ],
    "renamed within a transaction": [
        "insert into $t values (2, 'a2', 'b2'); alter table $t rename a to c; alter table $t rename b to a;"
        " update $t set c = 'c3' where id = 2; insert into $t values (3, 'c3', 'a3')",
    ],
    "renamed to a name of before": [
        "alter table $t rename a to c",
        "insert into $t (id, c) values (2, 'c2')",
        "alter table $t rename b to a",
        "insert into $t (id, a, c) values (3, 'a3', 'c3')",
    ],
    "widened": ["alter table $t alter n type varchar(20)", "update $t set n = 'longer than five'"],
    "any length": ["alter table $t alter n type text", "update $t set n = 'longer than five'"],
    "key of two columns": [
        "alter table $t alter b set not null, drop constraint $t_pkey, add primary key (id, b)",
        "insert into $t values (1, 'a1', 'b2'), (2, 'a', 'b')",
        "update $t set a = 'by both' where b = 'b2'",
    ],
    "another key": [
        "alter table $t alter b set not null, drop constraint $t_pkey, add primary key (b)",
        "insert into $t values (1, 'a1', 'b2')",
        "update $t set b = 'b3' where b = 'b2'",
        "delete from $t where b = 'b1'",
    ],
    "without a key": [
        "alter table $t drop constraint $t_pkey; alter table $t replica identity full",
        "insert into $t values (1, 'a1', 'b1', 'n1')",
        "update $t set a = 'a2' where ctid = (select min(ctid) from $t)",
    ],
}


@pytest.mark.parametrize("kind", CHANGES)
def test_columns_and_keys_are_followed(changed: Changed, kind: str):
    with changed.made.running():
        changed.run(*CHANGES[kind])
        changed.become_equal()


@pytest.mark.parametrize("kind", CHANGES)
def test_they_are_followed_from_far_behind(changed: Changed, kind: str):
    changed.run(*CHANGES[kind])
    changed.stage.arrive()
    changed.run("update $t set a = 'later'" if kind != "renamed" else "update $t set c = 'later'")
    changed.stage.arrive()
    with changed.made.running():
        changed.become_equal()


def test_a_table_and_its_schema_are_renamed(changed: Changed):
    schema = unique("s")
    with changed.made.running():
        changed.run(f"create schema {schema}", "alter table $t rename to renamed_t", "update renamed_t set a = 'x'")
        changed.become_equal("renamed_t")
        assert changed.made.table("renamed_t").state == "following"
        changed.run(f"alter table renamed_t set schema {schema}", f"alter table {schema}.renamed_t rename to again")
        changed.run(f"update {schema}.again set a = 'y'")
        head = changed.stage.arrive()
        eventually(lambda: changed.made.found.seq >= head)
        assert changed.made.look.execute(f"select a from {schema}.again".encode()).fetchall() == [("y",)]
        [table] = changed.made.found.table_states
        assert (table.table_schema, table.table_name) == (schema, "again")
    # What it is called is known when it begins again.
    with changed.made.running():
        changed.run(f"update {schema}.again set a = 'z'")
        head = changed.stage.arrive()
        eventually(lambda: changed.made.found.seq >= head)
        assert changed.made.look.execute(f"select a from {schema}.again".encode()).fetchall() == [("z",)]


@pytest.mark.parametrize("exchanged", [True, False])
def test_names_of_tables_that_are_exchanged(stage: Stage, cluster: Cluster, exchanged: bool):
    first, second = unique("t"), unique("t")
    tables = [f"create table {name} (id int primary key, a text)" for name in (first, second)]
    stage.run(*tables)
    publish_new_tables(stage.config)
    stage.run(f"insert into {first} values (1, 'first')", f"insert into {second} values (1, 'second')")
    stage.arrive()
    rows = [f"insert into {first} values (1, 'first')", f"insert into {second} values (1, 'second')"]
    given = {"copy": "none", "schema": "exists"}
    with copying(stage, cluster, *tables, *rows, tables=[first, second], **given) as made, made.running():
        stage.run(
            f"alter table {first} rename to over",
            f"alter table {second} rename to {first}",
            f"alter table over rename to {second if exchanged else 'over_' + first}",
            f"update {first} set a = a || ' changed'",
        )
        made.tables = [first] if not exchanged else [first, second]
        made.become_equal()
        stage.run(f"update {second if exchanged else 'over_' + first} set a = a || ' changed'")
        made.tables = [first, second if exchanged else "over_" + first]
        made.become_equal()


@pytest.mark.parametrize("changed", [{"ddl": "stop"}], indirect=True)
def test_it_stops_where_it_is_not_to_follow(changed: Changed):
    with changed.made.running():
        changed.run("insert into $t values (2)", "alter table $t add age int", "insert into $t (id, age) values (3, 5)")
        reason, remedy = changed.stopped()
        assert reason == (
            f"table public.{changed.t} of the follower stops: the source added column age (integer) to"
            f" public.{changed.t}, and --ddl is stop"
        )
        statement = f'alter table "public"."{changed.t}" add column "age" integer'
        assert remedy.startswith(f"`{statement}` there")
        assert changed.made.look.execute(f"select id from {changed.t}".encode()).fetchall() == [(1,), (2,)]
        changed.there(statement)
        eventually(lambda: changed.made.found.state == "following", 60)
        changed.become_equal()


def test_a_view_that_needs_a_column(changed: Changed):
    changed.there("create view looks as select b from $t")
    with changed.made.running():
        changed.run("alter table $t drop b", "update $t set a = 'a2'")
        reason, remedy = changed.stopped()
        assert f"table public.{changed.t} of the follower stops: the source dropped column b of" in reason
        assert "other objects depend on it (SQLSTATE 2BP01)" in reason
        assert f'`alter table "public"."{changed.t}" drop column "b"` can be run there' in remedy
        changed.there("drop view looks")
        eventually(lambda: changed.made.found.state == "following", 60)
        changed.become_equal()


def test_a_type_that_the_follower_lacks(changed: Changed):
    kind = unique("mood")
    with changed.made.running():
        changed.run(
            f"create type {kind} as enum ('sad', 'ok')", f"alter table $t add m {kind}", "update $t set m = 'ok'"
        )
        reason, remedy = changed.stopped()
        assert f"column m is of type public.{kind} at the source, which the follower lacks" in reason
        assert remedy.startswith(f"`create type public.{kind} …` there")
        changed.there(f"create type {kind} as enum ('sad', 'ok')")
        eventually(lambda: changed.made.found.state == "following", 60)
        changed.become_equal()


def test_an_own_column_that_takes_no_null(changed: Changed):
    changed.there("alter table $t add own text not null default 'old'", "alter table $t alter own drop default")
    with changed.made.running():
        changed.run("insert into $t values (2)")
        reason, remedy = changed.stopped()
        assert f"table public.{changed.t} of the follower stops: its column own takes no null" in reason
        assert remedy.startswith(f"`alter table public.{changed.t} alter column own drop not null` there")
        changed.there("alter table $t alter own set default 'new'")
        changed.become_equal()


def test_labels_of_an_enum(changed: Changed):
    kind = unique("mood")
    create = f"create type {kind} as enum ('sad', 'ok')"
    changed.there(create)
    with changed.made.running():
        changed.run(create, f"alter table $t add m {kind}", "update $t set m = 'ok'")
        changed.become_equal()
        changed.run(
            f"alter type {kind} add value 'fine'",
            f"alter type {kind} add value 'bad' before 'sad'",
            f"alter type {kind} add value 'so so' after 'sad'",
            "insert into $t (id, m) values (2, 'fine'), (3, 'bad'), (4, 'so so')",
        )
        changed.become_equal()
        labels = f"select enum_range(null::{kind})::text".encode()
        assert changed.made.look.execute(labels).fetchone() == changed.stage.source.execute(labels).fetchone()
        changed.run(f"alter type {kind} rename value 'ok' to 'alright'", "insert into $t (id, m) values (5, 'alright')")
        changed.become_equal()


def test_two_appliers_alter_once(changed: Changed):
    with changed.made.running(), changed.made.running():
        for number in range(5):
            changed.run(f"alter table $t add c{number} int", f"update $t set c{number} = 1")
        changed.become_equal()
