"""An unchanged TOASTed value, which the WAL lacks, is in the event all the same: as the row's last event had it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fixtures.filling import Filling, big, filling
from tests.fixtures.postgres import Cluster
from tests.fixtures.waiting import eventually

EACH_MAJOR = pytest.mark.parametrize("stage", [18, 15], indirect=True)
"""For tests of what the catalog says, and of how values are printed; others run on 15 in the long tests."""


@pytest.fixture(scope="module", params=[18, pytest.param(15, marks=pytest.mark.long)])
def stage(request: pytest.FixtureRequest, clusters: Callable[[int], Cluster]) -> Iterator[Filling]:
    with filling(clusters(request.param)) as made:
        yield made


@pytest.fixture
def jobs(stage: Filling) -> str:
    """A row with two TOASTed values and one that changes."""
    name = stage.table("a text, id int primary key, b text, n int")
    stage.run(f"insert into {name} values ({big('a')}, 1, {big('b')}, 0)")
    return name


@EACH_MAJOR
def test_updates_of_one_row_have_its_unchanged_values(stage: Filling, jobs: str) -> None:
    stage.run(f"update {jobs} set n = 1", f"update {jobs} set n = 2")
    assert stage.left_out(jobs) == [None] * 3


def test_an_update_of_a_row_that_was_read_has_its_unchanged_values(stage: Filling, jobs: str) -> None:
    """The row's insert is staged as what a snapshot had read; once in the segment of its update, once before it."""
    stage.arrive()
    for key in (2, 3):
        # A message is staged, and so is what comes behind it.
        stage.run("select pg_logical_emit_message(true, 'note', '')")
        stage.run(f"insert into {jobs} values ({big('c')}, {key}, {big('d')}, 0)")
        if key == 2:
            stage.run(f"update {jobs} set n = 1 where id = 2")
        become_reads(stage, jobs, str(key), updated=key == 2)
        stage.arrive()
    stage.run(f"update {jobs} set id = 4 where id = 3", f"update {jobs} set a = 'a', n = 2 where id = 4")
    events = stage.checked(jobs)
    assert [event["action"] for event in events] == ["insert", "read", "update", "read", "update", "update"]
    assert [event["unchanged_columns"] for event in events] == [None] * 6


def become_reads(stage: Filling, name: str, key: str, *, updated: bool) -> None:
    """As the staged insert of this key would be, had the row been read. `updated`: wait for its update too."""
    found = "record_pk = %s and relation_id in (select id from pipeline.relations where table_name = %s)"
    wanted = ["insert", "update"] if updated else ["insert"]

    def staged() -> bool:
        rows = stage.log.execute(f"select action from wal_events where {found} order by ordinal", [key, name])
        return [action for (action,) in rows] == wanted

    eventually(staged)
    as_read = f"update wal_events set action = 'read', commit_idx = 1 where {found} and action = 'insert'"
    stage.log.execute(as_read.encode(), [key, name])


def test_each_value_is_the_last_one(stage: Filling, jobs: str) -> None:
    stage.run(f"update {jobs} set a = {big('c')}", f"update {jobs} set b = {big('d')}", f"update {jobs} set n = 1")
    stage.transaction(f"update {jobs} set a = 'x'", f"update {jobs} set n = 2", f"update {jobs} set a = {big('e')}")
    stage.run(f"update {jobs} set b = null", f"update {jobs} set n = 3")
    assert stage.left_out(jobs) == [None] * 9


def test_every_position_of_the_value_that_is_left_out(stage: Filling) -> None:
    name = stage.table("a text, b text, id int primary key, c text, n int, d text")
    stage.run(f"insert into {name} values ({big('a')}, {big('b')}, 1, {big('c')}, 0, {big('d')})")
    stage.run(*(f"update {name} set {column} = {big(column + 'x')}" for column in "abcd"))
    stage.run(
        f"update {name} set n = 1", f"update {name} set a = {big('1')}, d = {big('2')}", f"update {name} set n = 2"
    )
    assert stage.left_out(name) == [None] * 8


@EACH_MAJOR
def test_values_of_every_kind_with_the_texts_that_jsonb_does_not_keep(stage: Filling) -> None:
    name = stage.table("id int primary key, n int, j json, jb jsonb, by bytea, ar text[], num numeric, x xml")
    text = f"(select json_build_object('k', {big('k')})::text)"
    stage.run(
        f"insert into {name} values (1, 0, replace({text}, ':', '  :  ')::json, {text}::jsonb, "
        f"decode({big('b')}, 'hex'), array[{big('1')}, null, 'x'], repeat('123456789', 470)::numeric, null)",
        f"update {name} set n = 1",
        f"update {name} set n = 2",
    )
    first, *later = stage.settled(name)
    for event in later:
        assert event["unchanged_columns"] is None
        assert event["exact"] == first["exact"] and set(first["exact"]) == {"j"}
        assert {**event["record"], "n": 0} == first["record"]


def test_a_key_that_changes_takes_the_values_along(stage: Filling, jobs: str) -> None:
    stage.run(
        f"update {jobs} set id = 2",
        f"update {jobs} set n = 1",
        f"insert into {jobs} values ({big('other')}, 1, {big('another')}, 0)",
        f"update {jobs} set id = 3, b = 'b' where id = 2",
        f"update {jobs} set n = n + 1",
    )
    stage.transaction(
        f"update {jobs} set id = 4 where id = 1",
        f"update {jobs} set id = 1 where id = 3",
        f"update {jobs} set id = 3 where id = 4",
        f"update {jobs} set n = n + 1",
        f"update {jobs} set id = id + 10",
        f"update {jobs} set id = id + 3",
        f"delete from {jobs} where id = 16",
        f"insert into {jobs} values ('short', 13, {big('new')}, 0)",
        f"update {jobs} set n = n + 1",
    )
    assert stage.left_out(jobs) == [None] * (1 + 6 + 3 + 2 + 2 + 2 + 1 + 2)


def test_a_key_that_is_toasted_itself(stage: Filling) -> None:
    name = stage.table("k text primary key, other text, n int")
    stage.run(f"alter table {name} alter k set storage external")
    stage.run(f"insert into {name} values ({big('k', 1500)}, {big('o')}, 0)", f"update {name} set n = 1")
    stage.run(f"update {name} set k = {big('l', 1500)}", f"update {name} set n = 2")
    events = stage.checked(name)
    assert [event["unchanged_columns"] for event in events] == [None] * 4
    assert [event["record_pk"] == event["record"]["k"] for event in events] == [True] * 4


def test_a_value_that_was_never_in_the_log_is_named_until_it_is(stage: Filling) -> None:
    row = f"insert into {{}} values (1, {big('a')}, {big('b')}, 0)"
    name = stage.table("id int primary key, a text, b text, n int", row)
    stage.run(f"update {name} set n = 1", f"update {name} set id = 2")
    stage.run(f"update {name} set b = {big('c')}", f"update {name} set n = 2", f"update {name} set a = 'a'")
    stage.run(f"update {name} set n = 3")
    assert stage.left_out(name) == [["a", "b"], ["a", "b"], ["a"], ["a"], None, None]


def test_many_updates_of_many_rows_in_one_transaction(stage: Filling, jobs: str) -> None:
    stage.run(f"insert into {jobs} select {big('s')}, i, {big('t')}, 0 from generate_series(2, 40) i")
    stage.transaction(*(f"update {jobs} set n = n + 1" for _ in range(60)))
    assert stage.left_out(jobs) == [None] * 40 * 61


def test_a_delete_and_an_insert_of_the_same_key(stage: Filling, jobs: str) -> None:
    stage.run(f"delete from {jobs}", f"insert into {jobs} values ('a', 1, {big('new')}, 0)", f"update {jobs} set n = 1")
    stage.run(f"truncate {jobs}", f"insert into {jobs} values ({big('newer')}, 1, 'b', 0)", f"update {jobs} set n = 2")
    assert stage.left_out(jobs) == [None] * 5


def test_after_a_restart(stage: Filling, jobs: str) -> None:
    stage.arrive()
    stage.restart()
    stage.run(f"update {jobs} set n = 1")
    stage.stop()
    stage.run(f"update {jobs} set n = 2", f"update {jobs} set id = 2", f"update {jobs} set n = 3")
    stage.start()
    assert stage.left_out(jobs) == [None] * 5


@EACH_MAJOR
def test_renamed_added_and_dropped_columns(stage: Filling, jobs: str) -> None:
    stage.arrive()
    for ddl in (
        "rename a to aa",
        "rename b to a",
        "add column later text default 'x'",
        "rename id to number",
        "drop column a",
        "add column a text",
    ):
        stage.run(f"alter table {jobs} {ddl}", f"update {jobs} set n = n + 1")
        stage.arrive()
    events = stage.settled(jobs)
    assert [event["unchanged_columns"] for event in events][:4] == [None] * 4
    for event, row in zip(events, stage.held(jobs), strict=True):
        left_out = event["unchanged_columns"] or []  # where it was in doubt which column is which
        assert event["record"].items() <= {column: row[column] for column in row if column not in left_out}.items()


def test_columns_that_change_names_within_a_transaction(stage: Filling, jobs: str) -> None:
    """Described when all is over: values may be named that could have been filled in, but none is wrong."""
    stage.transaction(
        f"update {jobs} set a = {big('2')}",
        f"alter table {jobs} rename a to c",
        f"update {jobs} set n = 2",
        f"alter table {jobs} rename b to a",
        f"update {jobs} set n = 3",
        f"alter table {jobs} drop column a",
        f"alter table {jobs} add column a text",
        f"update {jobs} set n = 4, a = {big('4')}",
    )
    stage.run(f"update {jobs} set n = 5")
    assert stage.left_out(jobs)[0] is None


def test_a_table_that_is_renamed(stage: Filling, jobs: str) -> None:
    stage.run(f"alter table {jobs} rename to {jobs}_2", f"update {jobs}_2 set n = 1")
    (event,) = stage.settled(f"{jobs}_2")
    assert (event["unchanged_columns"], event["record"]) == (None, stage.held(jobs)[-1])


@EACH_MAJOR
def test_values_that_a_rewrite_has_changed_are_not_filled_in(stage: Filling, jobs: str) -> None:
    stage.arrive()
    stage.run(f"alter table {jobs} alter a type varchar(9000) using upper(a)", f"update {jobs} set n = 1")
    assert stage.left_out(jobs)[1] in (["a"], ["a", "b"])  # 15.20 writes the catalog's rows of later columns again
    stage.run(f"alter table {jobs} alter b type text using upper(b)", f"update {jobs} set n = 2")
    assert stage.left_out(jobs)[2] in (["a", "b"], ["a"]) and "b" in (stage.left_out(jobs)[2] or [])
    stage.run(f"update {jobs} set a = {big('new')}", f"update {jobs} set n = 3")
    assert stage.left_out(jobs)[3:] == [["b"], ["b"]]


@EACH_MAJOR
def test_keys_that_a_rewrite_has_exchanged(stage: Filling) -> None:
    name = stage.table("id int primary key, a text, n int")
    stage.run(f"insert into {name} values (1, {big('1')}, 0), (2, {big('2')}, 0)")
    stage.arrive()
    stage.run(f"alter table {name} alter id type int using 3 - id", f"update {name} set n = 1")
    assert stage.left_out(name)[2:] == [["a"], ["a"]]


@EACH_MAJOR
def test_another_replica_identity(stage: Filling) -> None:
    name = stage.table("id int primary key, code int not null unique, a text, n int")
    stage.run(f"insert into {name} values (1, 2, {big('1')}, 0), (2, 1, {big('2')}, 0)", f"update {name} set n = 1")
    stage.run(f"alter table {name} replica identity using index {name}_code_key", f"update {name} set n = 2")
    assert stage.left_out(name) == [None] * 4 + [["a"], ["a"]]
    stage.run(f"alter table {name} replica identity full", f"update {name} set n = 3")
    stage.run(f"alter table {name} replica identity default", f"update {name} set n = 4")
    assert stage.left_out(name)[6:] == [None] * 4


def test_changes_that_were_not_published_make_what_is_known_unknown(stage: Filling, jobs: str) -> None:
    stage.run(f"update {jobs} set n = 1")
    stage.arrive()
    stage.run(f"alter table {jobs} replica identity nothing, disable trigger user")
    stage.publish()
    stage.run(f"update {jobs} set a = {big('unseen')}", f"update {jobs} set n = 2")
    stage.run(f"alter table {jobs} replica identity default, enable trigger user")
    stage.publish()
    stage.run(f"update {jobs} set n = 3", f"update {jobs} set n = 4, b = {big('seen')}", f"update {jobs} set n = 5")
    assert stage.left_out(jobs) == [None, None, ["a", "b"], ["a"], ["a"]]


@EACH_MAJOR
def test_partitions_that_come_and_go(stage: Filling) -> None:
    name = stage.table(
        "id int, k int, a text, n int, primary key (id, k)) partition by list (k",
        "create table {0}_1 partition of {0} for values in (1)",
        "create table {0}_2 partition of {0} for values in (2)",
        "create table {0}_3 (like {0} including all)",
    )
    stage.run(f"insert into {name} values (1, 1, {big('1')}, 0), (1, 2, {big('2')}, 0)", f"update {name} set n = 1")
    stage.run(f"update {name} set k = 3 - k where k = 1 and false", f"update {name} set n = 2")
    assert stage.left_out(name) == [None] * 6
    stage.shadow(f"{name}_3", name)
    stage.run(f"insert into {name}_3 values (1, 3, {big('3')}, 0)", f"update {name}_3 set n = 1")
    assert [event["unchanged_columns"] for event in stage.settled(f"{name}_3")] == [None, None]
    stage.run(f"drop trigger shadow on {name}_3", f"alter table {name} attach partition {name}_3 for values in (3)")
    stage.run(f"update {name} set n = 3")
    events = stage.settled(name)[6:]
    assert [event["unchanged_columns"] for event in events] == [None] * 3
    stage.run(f"alter table {name} detach partition {name}_1", f"update {name} set n = 4")
    stage.publish()
    stage.run(f"update {name}_1 set n = 5")
    assert [event["unchanged_columns"] for event in stage.settled(name)[9:]] == [None] * 2
    assert stage.events(f"{name}_1")[-1]["unchanged_columns"] == ["a"]


@EACH_MAJOR
def test_a_partition_found_before_its_first_change_keeps_known_values(stage: Filling) -> None:
    name = stage.table(
        "id int, k int, a text, n int, primary key (id, k)) partition by list (k",
        "create table {0}_1 (like {0} including all)",
    )
    stage.run(f"insert into {name}_1 values (1, 1, {big('1')}, 0)")
    stage.arrive()
    stage.run(f"alter table {name} attach partition {name}_1 for values in (1)")

    def is_found() -> bool:
        stage.run("select pg_logical_emit_message(true, 'another', '')")  # names count once the stream is beyond them
        query = "select from pipeline.relations where relation_name = %s and table_name = %s"
        return bool(stage.log.execute(query, [f"{name}_1", name]).rowcount)

    eventually(is_found)
    stage.run(f"update {name} set n = 1")
    assert [event["unchanged_columns"] for event in stage.settled(name)] == [None]


@EACH_MAJOR
def test_partitions_with_keys_that_the_root_does_not_have(stage: Filling) -> None:
    name = stage.table(
        "id int, k int, a text, n int) partition by list (k",
        "create table {0}_1 partition of {0} (primary key (id)) for values in (1)",
        "create table {0}_2 partition of {0} (primary key (id)) for values in (2)",
        f"insert into {{0}} values (1, 2, {big('never seen')}, 0)",
    )
    stage.run(f"insert into {name} values (1, 1, {big('1')}, 0)", f"update {name} set n = 1")
    assert [event["unchanged_columns"] for event in stage.settled(name)[1:]] == [["a"], ["a"]]
