"""Tables are altered while the server runs: each event has the columns that were true at its place."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from pipeline.operate.metrics import render
from tests.fixtures.altering import Altering, Event
from tests.fixtures.waiting import eventually

TABLE = "create table {0} (id int primary key, a text)"
FIRST, LAST = "insert into {0} (id, a) values (1, 'x')", "insert into {0} (id, a) values (9, 'y')"


def inserted(table: str, **record: object) -> Event:
    return Event("insert", table, str(record.get("id", "")), record)


def updated(table: str, **record: object) -> Event:
    return Event("update", table, str(record.get("id", "")), record)


def test_a_column_that_is_added_is_in_events_from_then_on(stage: Altering) -> None:
    stage.run(
        "create table added (id int primary key)",
        "insert into added values (1)",
        "alter table added add b text",
        "insert into added values (2, 'x')",
        "update added set b = 'y' where id = 1",
    )
    assert stage.events("added") == [
        inserted("added", id=1),
        inserted("added", id=2, b="x"),
        updated("added", id=1, b="y"),
    ]
    assert stage.rewrites("added") == []
    assert stage.columns("added") == {"id": (1, ["id"]), "b": (2, ["b"])}


@pytest.mark.parametrize("default", ["5", "(random() * 0 + 5)::int"])
def test_a_column_added_with_a_default_is_recorded_as_a_rewrite(stage: Altering, default: str) -> None:
    table = f"filled_{default[0] == '5'}".lower()
    stage.run(
        f"create table {table} (id int primary key)",
        f"insert into {table} values (1)",
        f"alter table {table} add b int default {default}",
        f"insert into {table} values (2)",
        f"update {table} set id = 3 where id = 1",
    )
    assert stage.events(table) == [
        inserted(table, id=1),
        inserted(table, id=2, b=5),
        updated(table, id=3, b=5),
    ]
    assert stage.rewrites(table) == [("default", ["b"])]


def test_a_default_of_a_column_that_may_be_another_one_is_recorded(stage: Altering) -> None:
    stage.run("create table doubted (id int primary key, b int)", "insert into doubted values (1, 1)")
    stage.arrive()
    with psycopg.connect(stage.config.source) as holder:
        holder.execute("select pg_current_xact_id()")  # until it ends, the slot may send what is older
        stage.run(
            "alter table doubted drop b",
            "insert into doubted values (2)",
            "alter table doubted add c boolean not null default false",
            "alter table doubted alter c drop default",
            "insert into doubted values (3, true)",
        )
        stage.arrive()
        assert stage.numbers("doubted")[2] == {"id": 1, "c": None}  # it may be a `b` that was renamed meanwhile
        eventually(lambda: stage.rewrites("doubted") == [("default", ["c"])])
        stage.run("insert into doubted values (4, true)")
        stage.arrive()
    assert stage.rewrites("doubted") == [("default", ["c"])]


@pytest.mark.parametrize("nullable", ["", "not null"])
def test_a_default_that_was_dropped_before_a_rewrite_is_recorded(stage: Altering, nullable: str) -> None:
    table = f"refilled_{nullable[:3]}"
    stage.run(f"create table {table} (id int primary key, a text)", f"insert into {table} values (1, 'x')")
    stage.arrive()
    stage.run(
        f"alter table {table} add b int {nullable} default 7; alter table {table} alter b drop default;"
        f" alter table {table} alter a type text using upper(a); insert into {table} values (2, 'X', 8)"
    )
    stage.arrive()
    assert ("default", ["b"]) in stage.rewrites(table)


def test_a_column_added_with_a_default_to_an_empty_table_is_none(stage: Altering) -> None:
    stage.run(
        "create table filled_empty (id int primary key)",
        "insert into filled_empty values (1)",
        "delete from filled_empty",
        "vacuum filled_empty",
        "alter table filled_empty add b int default 5",
    )
    stage.arrive()
    stage.run("insert into filled_empty values (2)", "delete from filled_empty", "vacuum filled_empty")
    stage.arrive()
    assert len(stage.events("filled_empty")) == 4


def test_a_column_that_is_dropped_is_in_events_until_then(stage: Altering) -> None:
    stage.run(
        "create table dropped (id int primary key, a text, b text)",
        "insert into dropped values (1, 'x', 'y')",
        "alter table dropped drop a",
        "insert into dropped values (2, 'z')",
        "alter table dropped add a text",
        "insert into dropped values (3, 'z', 'a')",
    )
    assert stage.events("dropped") == [
        inserted("dropped", id=1, a="x", b="y"),
        inserted("dropped", id=2, b="z"),
        inserted("dropped", id=3, b="z", a="a"),
    ]
    assert stage.columns("dropped")["b"] == (3, ["b"])
    assert stage.columns("dropped")["a"][1] == ["a"]  # its number is in doubt: the first a went but now
    assert stage.rewrites("dropped") == []


def test_a_renamed_column_is_known_under_both_names(stage: Altering) -> None:
    stage.run(
        TABLE.format("renamed"),
        FIRST.format("renamed"),
        "alter table renamed rename a to b",
        "insert into renamed values (2, 'y')",
    )
    assert stage.events("renamed") == [inserted("renamed", id=1, a="x"), inserted("renamed", id=2, b="y")]
    assert stage.columns("renamed") == {"id": (1, ["id"]), "b": (2, ["a", "b"])}
    assert stage.rewrites("renamed") == []


def test_swapped_names_follow_their_columns(stage: Altering) -> None:
    stage.run(
        "create table swapped (id int primary key, a text, b text)",
        "insert into swapped values (1, 'a', 'b')",
        "alter table swapped rename a to c; alter table swapped rename b to a; alter table swapped rename c to b",
        "update swapped set a = 'x'",
    )
    assert stage.events("swapped") == [
        inserted("swapped", id=1, a="a", b="b"),
        updated("swapped", id=1, b="a", a="x"),
    ]
    assert stage.columns("swapped") == {"id": (1, ["id"]), "b": (2, ["a", "b"]), "a": (3, ["b", "a"])}


def test_a_renamed_table(stage: Altering) -> None:
    stage.run(
        TABLE.format("old_name"),
        FIRST.format("old_name"),
        "alter table old_name rename to new_name",
        LAST.format("new_name"),
    )
    assert stage.events("old_name", "new_name") == [
        inserted("old_name", id=1, a="x"),
        inserted("new_name", id=9, a="y"),
    ]
    assert stage.columns("new_name") == {"id": (1, ["id"]), "a": (2, ["a"])}


def test_another_schema(stage: Altering) -> None:
    stage.run(
        "create schema one; create schema two",
        TABLE.format("one.moved"),
        FIRST.format("one.moved"),
        "alter table one.moved set schema two",
        LAST.format("two.moved"),
    )
    assert stage.events("moved") == [inserted("one.moved", id=1, a="x"), inserted("two.moved", id=9, a="y")]


def test_a_renamed_schema(stage: Altering) -> None:
    """The source does not send it before 16; it is found within seconds."""
    stage.run("create schema before", TABLE.format("before.kept"), FIRST.format("before.kept"))
    assert stage.events("kept") == [inserted("before.kept", id=1, a="x")]
    stage.run("alter schema before rename to after")

    def found() -> None:
        stage.run("update after.kept set a = a || 'x'")
        assert stage.events("kept")[-1].table == "after.kept"

    eventually(found)
    assert stage.columns("kept") == {"id": (1, ["id"]), "a": (2, ["a"])}


def test_another_type_with_a_rewrite(stage: Altering) -> None:
    stage.run(
        TABLE.format("retyped"),
        "insert into retyped values (1, '7')",
        "alter table retyped alter a type int using a::int",
        "insert into retyped values (2, 8)",
        "update retyped set id = 3 where id = 1",
    )
    assert stage.events("retyped") == [
        inserted("retyped", id=1, a="7"),
        inserted("retyped", id=2, a=8),
        updated("retyped", id=3, a=7),
    ]
    assert stage.rewrites("retyped") == [("type", ["a"])]


def test_another_type_without_a_rewrite(stage: Altering) -> None:
    stage.run(
        "create table widened (id int primary key, a varchar(10))",
        "insert into widened values (1, 'x')",
        "alter table widened alter a type varchar(20)",
        "insert into widened values (2, 'y')",
        "alter table widened alter a type text",
        "insert into widened values (3, 'z')",
    )
    assert [event.record["a"] for event in stage.events("widened")] == ["x", "y", "z"]
    assert stage.rewrites("widened") == []
    assert stage.columns("widened")["a"] == (2, ["a"])


def test_the_same_type_with_other_values_is_a_rewrite(stage: Altering) -> None:
    stage.run(
        TABLE.format("uppered"),
        FIRST.format("uppered"),
        "alter table uppered alter a type text using upper(a)",
        LAST.format("uppered"),
        "update uppered set id = 2 where id = 1",
    )
    assert [event.record["a"] for event in stage.events("uppered")] == ["x", "y", "X"]
    assert stage.rewrites("uppered") == [("values", ["a"])]


@pytest.mark.parametrize("harmless", ["vacuum full {0}", "cluster {0} using {0}_pkey", "truncate {0}", "analyze {0}"])
def test_what_moves_rows_and_changes_none_is_no_rewrite(stage: Altering, harmless: str) -> None:
    table = "still_" + harmless.partition(" ")[0]
    stage.run(
        TABLE.format(table),
        FIRST.format(table),
        harmless.format(table),
        LAST.format(table),
    )
    assert [event.pk for event in stage.events(table) if event.action == "insert"] == ["1", "9"]
    assert stage.rewrites(table) == []
    assert stage.columns(table)["a"] == (2, ["a"])
    assert stage.forms(table) == 1


def test_a_dropped_and_an_added_primary_key(stage: Altering) -> None:
    stage.run(
        "create table rekeyed (id int primary key, a text not null)",
        "insert into rekeyed values (1, 'x')",
        "alter table rekeyed drop constraint rekeyed_pkey",
        "insert into rekeyed values (2, 'y')",
        "alter table rekeyed add primary key (a, id)",
        "insert into rekeyed values (3, 'z')",
        "update rekeyed set id = 4 where id = 1",
    )
    assert [event[2:] for event in stage.events("rekeyed")] == [
        ("1", {"id": 1, "a": "x"}),
        ("", {"id": 2, "a": "y"}),
        ('[3,"z"]', {"id": 3, "a": "z"}),
        ('[4,"x"]', {"id": 4, "a": "x"}),
    ]


def test_another_replica_identity(stage: Altering) -> None:
    stage.run(
        "create table identified (id int primary key, u text not null unique)",
        "insert into identified values (1, 'x')",
        "alter table identified replica identity using index identified_u_key",
        "insert into identified values (2, 'y')",
        "alter table identified replica identity full",
        "delete from identified where id = 1",
        "alter table identified replica identity nothing",
        "insert into identified values (3, 'z')",
    )
    assert stage.events("identified") == [
        Event("insert", "identified", "1", {"id": 1, "u": "x"}),
        Event("insert", "identified", "y", {"id": 2, "u": "y"}),
        Event("delete", "identified", "1", {"id": 1, "u": "x"}),
        Event("insert", "identified", "", {"id": 3, "u": "z"}),
    ]


def test_the_key_under_full_is_the_whole_primary_key_and_nothing_else(stage: Altering) -> None:
    stage.run(
        "create table included (a int, id int, note text, primary key (id, a) include (note))",
        "alter table included replica identity full",
        "insert into included values (1, 2, 'n')",
    )
    stage.arrive()
    stage.run(
        "alter table included drop constraint included_pkey; alter table included add primary key (a)",
        "insert into included values (3, 4, 'm')",
    )
    assert [event.pk for event in stage.events("included")] == ["[1,2]", "3"]


def test_a_table_dropped_and_created_again_under_its_name(stage: Altering) -> None:
    stage.run(
        TABLE.format("again"),
        FIRST.format("again"),
        "drop table again",
        "create table again (a int, b text primary key)",
        "insert into again values (1, 'x')",
        "drop table again; create table again (id int primary key); insert into again values (5)",
    )
    assert stage.events("again") == [
        inserted("again", id=1, a="x"),
        Event("insert", "again", "x", {"a": 1, "b": "x"}),
        inserted("again", id=5),
    ]
    assert stage.rewrites("again") == []


def test_values_of_an_enum_that_are_added_and_renamed(stage: Altering) -> None:
    stage.run(
        "create type mood as enum ('sad')",
        "create table moods (id int primary key, m mood)",
        "insert into moods values (1, 'sad')",
        "alter type mood add value 'glad'",
        "insert into moods values (2, 'glad')",
        "alter type mood rename value 'sad' to 'blue'; insert into moods values (3, 'blue')",
        "update moods set id = 4 where id = 1",
    )
    assert [event.record["m"] for event in stage.events("moods")] == ["sad", "glad", "blue", "blue"]


def test_a_composite_type_is_known_to_be_altered_before_any_value_of_it(stage: Altering) -> None:
    stage.run(
        "create type inner_pair as (x int, y text); create type outer_pair as (p inner_pair, ps inner_pair[])",
        "create table paired (id int primary key, o outer_pair)",
        "insert into paired values (1, row(row(1, 'a'), '{}'))",
    )
    stage.arrive()
    stage.run(
        "alter type inner_pair drop attribute y, add attribute z int;"
        "insert into paired values (2, row(row(2, 3), array[row(4, 5)::inner_pair]))"
    )
    stage.arrive()
    assert stage.rewrites("paired") == [("attributes", ["o"])]
    stage.run("alter type inner_pair rename attribute z to w", "insert into paired values (3, null)")
    stage.arrive()
    assert stage.rewrites("paired") == [("attributes", ["o"]), ("renamed", ["o"])]
    assert {table.table: table for table in stage.status().rewritten}["public.paired"].kinds == ["attributes"]


def test_an_altered_domain(stage: Altering) -> None:
    stage.run(
        "create domain doc as jsonb",
        "create table docs (id int primary key, d doc)",
        """insert into docs values (1, '{"a": 1}')""",
    )
    stage.arrive()
    stage.run(
        "alter domain doc add constraint sound check (jsonb_typeof(value) = 'object')",
        """insert into docs values (2, '{"a": 2}')""",
        "alter table docs alter d type jsonb; drop domain doc",
        """insert into docs values (3, '{"a": 3}')""",
    )
    assert [event.record["d"] for event in stage.events("docs")] == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_every_change_in_one_transaction_with_data_around_it(stage: Altering) -> None:
    stage.run(
        "create table whole (id int primary key, a text)",
        "insert into whole values (1, 'x');"
        "alter table whole add b int default 7; insert into whole values (2, 'y', 8);"
        "alter table whole rename a to c; update whole set c = 'z' where id = 1;"
        "alter table whole alter b type text; insert into whole values (3, 'w', '9');"
        "alter table whole drop c; insert into whole values (4, 'ten');"
        "alter table whole rename to entire; delete from entire where id = 2;"
        "alter table entire drop constraint whole_pkey; alter table entire add primary key (b);"
        "insert into entire values (5, 'key')",
    )
    assert stage.events("whole", "entire") == [
        inserted("whole", id=1, a="x"),
        inserted("whole", id=2, a="y", b=8),
        updated("whole", id=1, c="z", b=7),
        inserted("whole", id=3, c="w", b="9"),
        inserted("whole", id=4, b="ten"),
        Event("delete", "entire", "2", {"id": 2}),
        Event("insert", "entire", "key", {"id": 5, "b": "key"}),
    ]


def test_a_column_added_in_the_middle_of_a_large_transaction(stage: Altering) -> None:
    stage.run(
        "create table large (id int primary key)",
        "insert into large select generate_series(1, 4000);"
        "alter table large add b int;"
        "insert into large select n, n from generate_series(4001, 8000) n",
    )
    events = stage.events("large")
    assert [list(event.record) for event in events] == [["id"]] * 4000 + [["b", "id"]] * 4000
    assert [event.pk for event in events] == [str(n) for n in range(1, 8001)]


def test_changes_that_are_rolled_back(stage: Altering) -> None:
    stage.run(
        TABLE.format("aborted"),
        "begin; insert into aborted values (1, 'x'); savepoint s; alter table aborted drop a;"
        "alter table aborted add b int default 1; insert into aborted values (2, 3); rollback to s;"
        "insert into aborted values (4, 'y'); commit",
        "begin; alter table aborted alter a type text using upper(a); rollback",
        "insert into aborted values (5, 'z')",
    )
    assert [event.record for event in stage.events("aborted")] == [
        {"id": 1, "a": "x"},
        {"id": 4, "a": "y"},
        {"id": 5, "a": "z"},
    ]
    assert stage.rewrites("aborted") == []
    assert stage.columns("aborted")["a"] == (2, ["a"])


def test_a_generated_column(stage: Altering) -> None:
    """Published from 18 on, and only if the publication says so."""
    stage.run(
        "create table computed (id int primary key)",
        "insert into computed values (1)",
        "alter table computed add g int generated always as (id * 2) stored",
        "insert into computed values (2)",
    )
    published = stage.major >= 18
    assert stage.events("computed") == [
        inserted("computed", id=1),
        inserted("computed", id=2, g=4) if published else inserted("computed", id=2),
    ]
    assert stage.rewrites("computed") == ([("default", ["g"])] if published else [])
    if published:
        stage.run("alter table computed alter g set expression as (id * 3)", "insert into computed values (3)")
        assert stage.events("computed")[-1] == inserted("computed", id=3, g=9)
        assert stage.rewrites("computed")[1:] == [("values", ["g"])]


def test_partitions_are_altered_through_their_root(stage: Altering) -> None:
    stage.run(
        "create table parted (id int primary key, a text) partition by range (id)",
        "create table parted_1 partition of parted for values from (0) to (10)",
        "create table parted_2 partition of parted for values from (10) to (20)",
        "insert into parted values (1, 'x'), (11, 'x')",
        "alter table parted add b int default 3; alter table parted rename a to c",
        "update parted set c = 'y'",
    )
    stage.arrive()
    stage.run(
        "alter table parted alter c type text using upper(c)",
        "update parted set b = 4",
        "alter table parted detach partition parted_2",
        "insert into parted_2 values (12, 'z', 5)",
    )
    assert stage.events("parted", "parted_2") == [
        inserted("parted", id=1, a="x"),
        inserted("parted", id=11, a="x"),
        updated("parted", id=1, c="y", b=3),
        updated("parted", id=11, c="y", b=3),
        updated("parted", id=1, c="Y", b=4),
        updated("parted", id=11, c="Y", b=4),
        inserted("parted_2", id=12, c="z", b=5),
    ]
    rewritten = {table.table: table for table in stage.status().rewritten}["public.parted"]
    assert rewritten.kinds == ["default", "values"]
    assert {"b", "c"} <= set(rewritten.columns)  # a detach touches all columns' rows: while behind, all are in doubt


def test_a_rewritten_table_is_named_until_somebody_settles_it(stage: Altering, tmp_path: Path) -> None:
    stage.run(
        TABLE.format("named"), FIRST.format("named"), "alter table named add b int default 5", LAST.format("named")
    )
    stage.arrive()
    found = stage.status()
    named = {table.table: table for table in found.rewritten}
    assert named["public.named"].columns == ["b"]
    assert named["public.named"].from_lsn is not None
    assert "--settle public.named" in named["public.named"].remedy
    assert f"pipeline_tables_rewritten {len(named)}.0" in render(found).decode()
    stage.settle(tmp_path, "public.named")
    assert "public.named" not in {table.table for table in stage.status().rewritten}


def test_a_rewrite_is_found_without_any_later_change(stage: Altering) -> None:
    stage.run(TABLE.format("quiet"), FIRST.format("quiet"))
    stage.arrive()
    stage.run("alter table quiet alter a type text using upper(a)")
    eventually(lambda: stage.rewrites("quiet") == [("values", ["a"])])
    stage.run(LAST.format("quiet"))
    stage.arrive()
    assert stage.rewrites("quiet") == [("values", ["a"])]
