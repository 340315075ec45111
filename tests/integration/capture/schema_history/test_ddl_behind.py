"""Tables are altered while no worker runs: the catalog is later than the stream, and no event gets what it has now."""

from __future__ import annotations

import pytest

from tests.fixtures.altering import Altering, Event
from tests.fixtures.waiting import eventually

BEFORE = (
    "create table uppered (id int primary key, a text)",
    "insert into uppered values (1, 'x')",
    "create table twice (id int primary key, a text)",
    "insert into twice values (1, 'x')",
    "create domain doc as jsonb",
    "create table docs (id int primary key, d doc)",
    """insert into docs values (1, '{"a": 1}')""",
    "create table full_key (a int primary key, b int not null)",
    "alter table full_key replica identity full",
    "insert into full_key values (1, 2)",
    "create table full_later (a int primary key, b int not null)",
    "insert into full_later values (1, 2)",
    "create table parted (id int primary key, a text) partition by range (id)",
    "create table parted_1 partition of parted for values from (0) to (10)",
    "create table parted_2 partition of parted for values from (10) to (20)",
    "create table parted_3 partition of parted for values from (20) to (30)",
    "insert into parted values (1, 'x'), (11, 'x'), (21, 'x')",
    "create table gone (id int primary key, d doc)",
    """insert into gone values (1, '{"a": 1}')""",
    "create table readded (id int primary key, a text, b text)",
    "insert into readded values (1, 'x', 'y')",
    "create table quiet (id int primary key, a text)",
    "insert into quiet values (1, 'x')",
    "create table renumbered (id int primary key, code int not null)",
    "alter table renumbered replica identity full",
    "insert into renumbered values (1, 100)",
    "create table ordered (a int, b int, primary key (a, b)) partition by list (a)",
    "create table ordered_2 (b int not null, a int not null)",
    "alter table ordered attach partition ordered_2 for values in (2)",
    "insert into ordered values (2, 20)",
    "create table plain (id int primary key, a text)",
    "insert into plain values (1, 'x')",
    "create table in_a_row (id int primary key, a text, b text, c text)",
    "insert into in_a_row values (0, 'a', 'b', 'c')",
)
AWAY = (
    "insert into uppered values (2, 'y')",
    "alter table uppered alter a type text using upper(a)",
    "update uppered set id = 3 where id = 1",
    "alter table twice alter a type text using a || '1'",
    "insert into twice values (2, 'y')",
    "alter table twice alter a type text using a || '2'",
    "insert into twice values (3, 'z')",
    """insert into docs values (2, '{"a": 2}')""",
    """insert into gone values (2, '{"a": 2}')""",
    "drop table gone; alter table docs alter d type jsonb; drop domain doc",
    """insert into docs values (3, '{"a": 3}')""",
    "insert into full_key values (3, 4)",
    "alter table full_key drop constraint full_key_pkey; alter table full_key rename a to c;"
    "alter table full_key add primary key (b)",
    "insert into full_key values (5, 6)",
    "alter table full_later replica identity full",
    "insert into full_later values (3, 4)",
    "alter table full_later drop constraint full_later_pkey; alter table full_later add primary key (b)",
    "insert into full_later values (5, 6)",
    "insert into parted values (2, 'x'), (12, 'x'), (22, 'x')",
    "alter table parted detach partition parted_2",
    "insert into parted_2 values (13, 'y')",
    "drop table parted_3",
    "insert into readded values (2, 'x', 'y')",
    "alter table readded drop a; alter table readded add a text",
    "insert into readded values (3, 'y', 'a')",
    "alter table quiet alter a type text using upper(a)",
    "alter table plain add c int",
    "insert into plain values (2, 'x', 5)",
    "alter table plain rename a to b",
    "update plain set c = 6 where id = 1",
    "insert into renumbered values (2, 200)",
    "alter table renumbered rename id to x; alter table renumbered rename code to id;"
    "alter table renumbered rename x to code",
    "insert into renumbered values (3, 300)",
    "insert into ordered values (2, 21)",
    "alter table ordered detach partition ordered_2; alter table ordered_2 rename a to c",
    "insert into ordered_2 (b, c) values (22, 2)",
    "create table fresh (id int primary key, a text)",
    "insert into fresh values (1, 'x')",
    "alter table fresh alter a type text using upper(a)",
    "update fresh set id = 2",
    "create table swapped (id int primary key, a text, b text)",
    "insert into swapped values (1, 'a', 'b')",
    "alter table swapped rename a to c; alter table swapped rename b to a; alter table swapped rename c to b",
    "update swapped set id = 2",
    "insert into in_a_row values (1, 'a', 'b', 'c')",
    "alter table in_a_row rename a to aa",
    "insert into in_a_row values (2, 'a', 'b', 'c')",
    "alter table in_a_row drop b",
    "insert into in_a_row values (3, 'a', 'c')",
    "alter table in_a_row add d text",
    "insert into in_a_row values (4, 'a', 'c', 'd')",
    "alter table in_a_row rename c to cc",
    "insert into in_a_row values (5, 'a', 'c', 'd')",
    "alter table in_a_row drop aa; alter table in_a_row add e int",
    "insert into in_a_row values (6, 'c', 'd', 7)",
)


@pytest.fixture(scope="module")
def behind(stage: Altering) -> Altering:
    """The worker was stopped after BEFORE, and has caught up with AWAY since."""
    stage.run(*BEFORE)
    stage.arrive()
    stage.stop()
    stage.run(*AWAY)
    stage.arrive()
    return stage


def pairs(behind: Altering, table: str) -> list[tuple[str, dict[str, object]]]:
    return [(event.pk, event.record) for event in behind.events(table)]


def test_a_rewrite_between_two_changes_holds_from_the_second(behind: Altering) -> None:
    assert [event.record["a"] for event in behind.events("uppered")] == ["x", "y", "X"]
    assert behind.rewrites("uppered") == [("values", ["a"])]
    assert behind.rewritten_from("uppered") == behind.places("uppered")[-1:]
    assert behind.names_from("uppered", "a") == behind.places("uppered")[-1]


def test_each_of_two_rewrites_is_recorded_or_the_last_one_for_both(behind: Altering) -> None:
    assert [event.record["a"] for event in behind.events("twice")] == ["x", "y", "z"]
    assert behind.rewritten_from("twice") == behind.places("twice")[-1:]
    assert behind.names_from("twice", "a") == behind.places("twice")[-1]


def test_a_rewrite_of_a_table_that_was_never_seen_before_it(behind: Altering) -> None:
    assert [event.record["a"] for event in behind.events("fresh")] == ["x", "X"]
    assert behind.rewrites("fresh") == [("values", ["a"])]
    assert behind.names_from("fresh", "a") == behind.places("fresh")[-1]


def test_a_rewrite_without_a_change_after_it(behind: Altering) -> None:
    eventually(lambda: behind.rewrites("quiet") == [("values", ["a"])])
    assert behind.rewritten_from("quiet") == [None]


def test_a_domain_over_json_that_is_gone(behind: Altering) -> None:
    assert [event.record["d"] for event in behind.events("docs")] == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert behind.rewrites("docs") == [("type", ["d"])]


def test_a_table_that_is_gone(behind: Altering) -> None:
    assert pairs(behind, "gone") == [("1", {"id": 1, "d": {"a": 1}}), ("2", {"id": 2, "d": {"a": 2}})]


def test_another_primary_key_of_a_table_with_full_identity(behind: Altering) -> None:
    assert pairs(behind, "full_key") == [("1", {"a": 1, "b": 2}), ("3", {"a": 3, "b": 4}), ("6", {"c": 5, "b": 6})]


def test_another_primary_key_after_full_identity(behind: Altering) -> None:
    assert [event.pk for event in behind.events("full_later")] == ["1", "3", "6"]


def test_a_key_whose_columns_have_swapped_their_names(behind: Altering) -> None:
    assert [event.pk for event in behind.events("renumbered")] == ["1", "2", "3"]


def test_the_key_of_a_partition_is_in_the_order_of_the_root_it_had(behind: Altering) -> None:
    found = [(event.table, event.pk) for event in behind.events("ordered", "ordered_2")]
    assert found == [("ordered", "[2,20]"), ("ordered", "[2,21]"), ("ordered_2", "[22,2]")]


def test_partitions_that_were_detached_or_dropped(behind: Altering) -> None:
    found = [(event.table, event.pk) for event in behind.events("parted", "parted_2", "parted_3")]
    assert found == [("parted", pk) for pk in ("1", "11", "21", "2", "12", "22")] + [("parted_2", "13")]


def test_a_column_dropped_and_added_again_is_another(behind: Altering) -> None:
    assert pairs(behind, "readded")[1:] == [("2", {"id": 2, "a": "x", "b": "y"}), ("3", {"id": 3, "b": "y", "a": "a"})]
    assert behind.names_from("readded", "a") == behind.places("readded")[-1]


def test_ordinary_changes_lose_no_name(behind: Altering) -> None:
    assert behind.events("plain")[1:] == [
        Event("insert", "plain", "2", {"id": 2, "a": "x", "c": 5}),
        Event("update", "plain", "1", {"id": 1, "b": "x", "c": 6}),
    ]
    assert behind.columns("plain") == {"id": (1, ["id"]), "b": (2, ["a", "b"]), "c": (3, ["c"])}
    assert behind.columns("swapped") == {"id": (1, ["id"]), "b": (2, ["a", "b"]), "a": (3, ["b", "a"])}
    assert behind.rewrites("plain") == behind.rewrites("swapped") == []


def test_columns_keep_their_numbers_through_changes_in_a_row(behind: Altering) -> None:
    assert [event.record for event in behind.events("in_a_row")][-2:] == [
        {"id": 5, "aa": "a", "cc": "c", "d": "d"},
        {"id": 6, "cc": "c", "d": "d", "e": 7},
    ]
    assert behind.numbers("in_a_row") == [
        {"id": 1, "a": 2, "b": 3, "c": 4},
        {"id": 1, "aa": 2, "b": 3, "c": 4},
        {"id": 1, "aa": 2, "c": 4},
        {"id": 1, "aa": 2, "c": 4, "d": 5},
        {"id": 1, "aa": 2, "cc": 4, "d": 5},
        {"id": 1, "cc": 4, "d": 5, "e": 6},
    ]


def test_a_restart_alone_changes_nothing(behind: Altering) -> None:
    behind.run("insert into uppered values (7, 'y')")
    behind.arrive()
    behind.run("insert into uppered values (8, 'y')")  # not described again, so nothing was rewritten in between
    eventually(lambda: behind.is_settled("uppered") and behind.rewrites("quiet"))  # nothing more can be found
    tables = ("plain", "uppered", "parted_1")
    forms, rewritten = [behind.forms(table) for table in tables], behind.status().rewritten
    behind.stop()
    behind.run("insert into plain values (9, 'y', 8)", "insert into uppered values (9, 'y')")
    assert [behind.events(table)[-1].pk for table in ("plain", "uppered")] == ["9", "9"]
    assert [behind.forms(table) for table in tables] == forms
    assert behind.status().rewritten == rewritten
