"""What an applier does with single changes, and where it stops."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from pipeline.errors import (
    ApplierOvertakenError,
    FollowerError,
    NotFollowableError,
    RowDiffersError,
    StatementRefusedError,
)
from pipeline.followers.applying import position
from pipeline.followers.applying.applier import LogApplier
from pipeline.followers.applying.followed_tables import TableToFollow
from pipeline.followers.applying.table_versions import HistoryPlace, ReachedVersion
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.background import BackgroundThread
from tests.fixtures.following import Follower, drain, follower, in_one_way, oid
from tests.fixtures.postgres import Cluster
from tests.fixtures.stage import Stage, databases
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.usefixtures("each_way")


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    with databases(cluster, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.start()
        yield stage


def made(stage: Stage, *statements: str) -> int:
    """Tables that are captured from their first row on, created again; the seq before it."""
    names = re.findall(r"create table (\w+)", " ".join(statements))
    stage.run(*(f"drop table if exists {name} cascade" for name in names), *statements)
    publish_new_tables(stage.config)
    return stage.arrive()


def seq_of(stage: Stage, table: str, action: str) -> int:
    """Of the newest event of this kind."""
    [row] = stage.look(
        "select max(seq) as seq from sequin_events where source_table_name = %s and action = %s", table, action
    )
    return int(row["seq"])


@pytest.fixture
def people(stage: Stage, cluster: Cluster) -> Iterator[Follower]:
    """A follower of a table with a key, a unique column, and at the follower its own column."""
    table = "create table people (id int primary key, code int unique, name text"
    made(stage, f"{table})")
    stage.run("insert into people select n, n * 10, 'name ' || n from generate_series(1, 5) n")
    stage.arrive()
    with follower(stage, cluster, f"{table}, own text default 'new')") as there:
        drain(there.applier(["people"]))
        there.run("update people set own = 'of ' || id")
        yield there


def test_columns_of_its_own_stay_with_their_rows(stage: Stage, people: Follower):
    applier = people.applier(["people"])
    for statements in (
        [
            "update people set id = -1 where id = 1",
            "update people set id = 1 where id = 2",
            "update people set id = 2 where id = -1",
        ],
        [
            "update people set code = 0 where id = 3",
            "update people set code = 30 where id = 4",
            "update people set code = 40 where id = 3",
        ],
        ["delete from people where id = 5", "insert into people values (5, 50, 'again')"],
    ):
        stage.transaction(*statements)
    stage.arrive()
    assert len(drain(applier)) == 1
    assert people.rows("select id, code, name, own from people order by id") == [
        (1, 20, "name 2", "of 2"),
        (2, 10, "name 1", "of 1"),
        (3, 40, "name 3", "of 3"),
        (4, 30, "name 4", "of 4"),
        (5, 50, "again", "new"),
    ]


@pytest.mark.parametrize("change", ["update people set name = 'other' where id = 3", "delete from people where id = 3"])
def test_a_missing_row_stops_it_before_that_transaction(stage: Stage, people: Follower, change: str):
    people.run("delete from people where id = 3")
    stage.run("update people set name = 'before' where id = 1")
    stage.transaction("update people set name = 'with it' where id = 2", change)
    stage.run("update people set name = 'after' where id = 4")
    stage.arrive()
    [row] = stage.look(
        "select max(seq) as seq from sequin_events where source_table_name = 'people' and record_pk = '3'"
    )
    applier = people.applier(["people"])
    with pytest.raises(RowDiffersError) as stopped:
        drain(applier)
    assert stopped.value.table == "public.people"
    assert "public.people" in str(stopped.value)
    assert f"seq {stopped.value.seq} " in str(stopped.value)
    assert stopped.value.seq == row["seq"]
    assert people.rows("select name from people where id in (1, 2, 4) order by id") == [
        ("before",),
        ("name 2",),
        ("name 4",),
    ]
    with pytest.raises(RowDiffersError):
        applier.apply()
    people.run("insert into people values (3, 30, 'name 3')")
    drain(applier)
    assert people.rows("select name from people where id in (1, 2, 4) order by id") == [
        ("before",),
        ("with it",),
        ("after",),
    ]


@pytest.mark.parametrize("there", ["6, 1", "7, 60"], ids=["key", "unique"])
def test_a_row_that_is_there_already_stops_it(stage: Stage, people: Follower, there: str):
    people.run(f"insert into people values ({there}, 'somebody')")
    stage.transaction("delete from people where id = 1", "insert into people values (6, 60, 'name 6')")
    stage.arrive()
    with pytest.raises(RowDiffersError) as stopped:
        drain(people.applier(["people"]))
    assert stopped.value.seq == seq_of(stage, "people", "insert")
    assert people.rows("select count(*) from people") == [(6,)]


@in_one_way
def test_the_second_of_two_appliers_is_turned_away(stage: Stage, people: Follower):
    first, second = people.applier(["people"]), people.applier(["people"])
    stage.run("update people set name = name || '!'")
    seq = stage.arrive()
    drain(first)
    with pytest.raises(ApplierOvertakenError, match="another applier has moved the position of follower copy"):
        second.apply()
    assert people.position() == first.position.seq <= seq
    assert people.rows("select name from people where id = 1") == [("name 1!",)]


class Applying(BackgroundThread):
    def __init__(self, there: Follower, tables: list[str]) -> None:
        super().__init__()
        self._applier = there.applier(tables)
        self.failed: BaseException | None = None

    def work(self) -> None:
        try:
            drain(self._applier)
        except psycopg.Error as error:
            self.failed = error


def test_nothing_stays_of_a_transaction_whose_session_is_killed(stage: Stage, cluster: Cluster):
    tables = ["create table first (id int primary key)", "create table second (id int primary key)"]
    made(stage, *tables)
    stage.run("insert into first values (1)", "insert into second values (1)")
    stage.arrive()
    with follower(stage, cluster, *tables) as there:
        drain(there.applier(["first", "second"]))
        stage.transaction("insert into first values (2)", "insert into second values (2)")
        stage.arrive()
        before = there.position()
        with there.look.transaction():
            there.run("lock second in share mode")
            with Applying(there, ["first", "second"]) as applying:
                pid = there.session.info.backend_pid
                waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
                eventually(lambda: there.look.execute(waits, [pid]).fetchone() == (True,))
                there.look.execute("select pg_terminate_backend(%s)", [pid])
        assert applying.failed is not None
        assert (there.position(), there.rows("select id from first")) == (before, [(1,)])
        drain(there.applier(["first", "second"]))
        assert there.rows("select id from first union all select id from second order by 1") == [(1,), (1,), (2,), (2,)]


def test_a_large_transaction_is_one_of_the_follower(stage: Stage, cluster: Cluster):
    table = "create table many (id int primary key, n int)"
    made(stage, table)
    stage.transaction(
        "insert into many select n, n from generate_series(1, 95) n", "update many set n = 0 where id < 50"
    )
    stage.run("insert into many values (96, 96)")
    stage.arrive()
    with follower(stage, cluster, table) as there:
        applied = drain(there.applier(["many"], events=10))
        [*_, large] = [each for each in applied if each.events > 10]
        assert large.transactions == 1
        assert large.events >= 144
        assert there.rows("select count(*), sum(n) from many") == [(96, 96 + sum(range(50, 96)))]


def test_partitions_are_truncated_one_by_one(stage: Stage, cluster: Cluster):
    tables = [
        "create table parts (id int primary key, n int) partition by range (id)",
        "create table parts_low partition of parts for values from (0) to (10)",
        "create table parts_high partition of parts for values from (10) to (20)",
    ]
    made(stage, *tables)
    stage.run("insert into parts values (1, 1), (11, 1)")
    stage.transaction(
        "insert into parts values (2, 2), (12, 2)",
        "truncate parts_low",
        "insert into parts values (2, 3)",
        "update parts set id = 3 where id = 12",
    )
    stage.arrive()
    expected = stage.source.execute("select id, n from parts order by id").fetchall()
    with follower(stage, cluster, *tables) as there:
        drain(there.applier(["parts"]))
        assert there.rows("select id, n from parts order by id") == expected
    with follower(stage, cluster, "create table parts (id int primary key, n int)") as there:
        with pytest.raises(NotFollowableError) as stopped:
            drain(there.applier(["parts"]))
        assert stopped.value.why == "partition"
        assert there.rows("select id from parts order by id") == [(1,), (11,)]
    stage.run("truncate parts")
    stage.arrive()
    with follower(stage, cluster, *tables) as there:
        drain(there.applier(["parts"]))
        assert there.rows("select id from parts") == []


def test_a_truncate_that_a_foreign_key_forbids_is_a_delete(stage: Stage, cluster: Cluster):
    tables = ["create table owners (id int primary key)", "create table pets (id int primary key, owner int)"]
    made(stage, *tables)
    stage.run("insert into owners values (1)", "insert into pets values (1, 1)")
    stage.transaction("truncate owners", "insert into owners values (2)")
    stage.arrive()
    key = "alter table pets add foreign key (owner) references owners (id)"
    with follower(stage, cluster, *tables, key) as there:
        drain(there.applier(["owners", "pets"]))
        assert there.rows("select id from owners") == [(2,)]
        assert there.rows("select id from pets") == [(1,)]


def test_a_large_value_that_stays_is_not_written_again(stage: Stage, cluster: Cluster):
    table = "create table letters (id int primary key, n int, words text)"
    external = "alter table letters alter words set storage external"
    made(stage, table, external)
    stage.run("insert into letters select n, 0, repeat(md5(n::text), 2000) from generate_series(1, 20) n")
    stage.arrive()
    with follower(stage, cluster, table, external) as there:
        applier = there.applier(["letters"])
        drain(applier)
        where = "select pg_relation_size(reltoastrelid) from pg_class where relname = 'letters'"
        before = there.rows(where)
        stage.run("update letters set n = 1")
        stage.arrive()
        drain(applier)
        assert there.rows("select sum(n) from letters") == [(20,)]
        assert there.rows(where) == before


def test_a_value_from_before_its_row_got_another_key_is_not_lost(stage: Stage, cluster: Cluster):
    table = "create table letters (id int primary key, words text)"
    made(stage, table)
    stage.run("insert into letters values (1, 'old'), (2, 'old')")
    stage.arrive()
    with follower(stage, cluster, table) as there:
        applier = there.applier(["letters"])
        drain(applier)
        stage.transaction(
            "update letters set words = 'new' where id = 1",
            "update letters set id = 3 where id = 1",
            "update letters set id = 4 where id = 2",
            "update letters set id = 5 where id = 3",
        )
        stage.arrive()
        stage.log.execute(
            "update sequin_events set record = record - 'words', unchanged_columns = '{words}'"
            " where source_table_name = 'letters' and changes ? 'id'"
        )
        drain(applier)
        assert there.rows("select id, words from letters order by id") == [(4, "old"), (5, "new")]


def test_generated_columns_and_identities(stage: Stage, cluster: Cluster):
    made(
        stage,
        "create table made (id int generated always as identity primary key, number int generated always as identity,"
        " n int, twice int generated always as (n * 2) stored)",
    )
    stage.run(
        "insert into made (n) values (1), (2)",
        "update made set n = 5 where id = 1",
        "update made set id = default where id = 2",
    )
    stage.run("update made set number = default where n = 5")
    stage.arrive()
    columns = "n int, number int generated always as identity, id int generated always as identity primary key"
    expected = stage.source.execute("select id, number, n, twice from made order by id").fetchall()
    for twice in ("twice int generated always as (n * 2) stored", "twice int"):
        with follower(stage, cluster, f"create table made ({columns}, {twice})") as there:
            drain(there.applier(["made"]))
            assert there.rows("select id, number, n, twice from made order by id") == expected


def test_a_renamed_column_and_a_new_one(stage: Stage, cluster: Cluster):
    made(stage, "create table forms (id int primary key, a text, b text)")
    stage.run("insert into forms values (1, 'a1', 'b1')")
    stage.transaction(
        "alter table forms rename a to c",
        "alter table forms rename b to a",
        "alter table forms rename c to b",
        "insert into forms values (2, 'b2', 'a2')",
    )
    seq = stage.arrive()
    stage.run("alter table forms add d int", "insert into forms values (3, 'x', 'y', 3)")
    stage.arrive()
    with follower(stage, cluster, "create table forms (a text, b text, id int primary key)") as there:
        applier = there.applier(["forms"])
        table, formed = oid(stage, "forms"), []
        for statements in (
            ["alter table forms rename a to c", "alter table forms rename b to a", "alter table forms rename c to b"],
            ["alter table forms add d int"],
        ):
            with pytest.raises(NotFollowableError) as stopped:
                drain(applier)
            assert (stopped.value.why, stopped.value.oid) == ("changed", table)
            assert applier.position.seq < stopped.value.seq
            there.run(*statements)
            formed.append(applier.tables[table].changes_at)
            applier = there.applier({table: TableToFollow("public", "forms", reached=ReachedVersion(formed[-1]))})
        assert applier.position.seq == seq
        drain(applier)
        assert there.rows("select id, b, a, d from forms order by id") == [
            (1, "a1", "b1", None),
            (2, "b2", "a2", None),
            (3, "x", "y", 3),
        ]


KEYS = {
    "numeric": ("1.0", "1.00"),
    "float8": ("-0", "1e20"),
    "jsonb": ('{"a": [1.50, "x"]}', "null"),
    '"char"': ("x", " "),
    "bytea": ("\\x00ff", "\\x"),
    "interval": ("1 mon", "30 days"),
    "timestamptz": ("2026-01-01 00:00:00.000001+00", "infinity"),
    "int4range": ("[1,5)", "empty"),
    "integer[]": ("{1,NULL}", "[0:1]={1,2}"),
    "boolean": ("t", "f"),
    "bpchar(5)": ("a", "b"),
    "public.mood": ("sad", "it's so"),
    "public.spot": ("(1,a)", "(,b)"),
    "public.small": ("1", "2"),
    "text": ("%s {} \\", "x" * 2100),
}
"""By type: one value and another."""


def test_a_key_of_any_type_is_found_and_changed(stage: Stage, cluster: Cluster):
    types = [
        f"do $$ begin create {made_once}; exception when duplicate_object then null; end $$"
        for made_once in (
            "type mood as enum ('sad', 'it''s so')",
            "type spot as (n int, t text)",
            "domain small as int check (value < 10)",
        )
    ]
    names = {key: f"keyed_{number}" for number, key in enumerate(KEYS)}
    tables = [f"create table {name} (k {key}, m int, n int, primary key (m, k))" for key, name in names.items()]
    seq = made(stage, *types, *tables)
    for statement in (
        "insert into {table} values ({a}, 1, 1), ({a}, 2, 1), ({a}, 3, 1)",
        "update {table} set n = 2 where m < 3",
        "update {table} set k = {b} where m = 1",
        "update {table} set n = 3 where m = 1",
        "delete from {table} where m = 2",
        "update {table} set k = {b}, m = 4 where m = 3",
    ):
        for key, (first, second) in KEYS.items():
            given = {"table": sql.Identifier(names[key]), "a": sql.Literal(first), "b": sql.Literal(second)}
            stage.run(sql.SQL(statement).format(**given))
    stage.arrive()
    for events in (1, 500):
        with follower(stage, cluster, *types, *tables, seq=seq) as there:
            drain(there.applier(list(names.values()), events=events))
            for key, name in names.items():
                query = f"select k::text, m, n from {name} order by m"
                assert there.rows(query) == stage.source.execute(query.encode()).fetchall(), key


def test_what_was_read_or_recovered_may_be_there(stage: Stage, people: Follower):
    stage.run("insert into people values (6, 60, 'six')", "update people set name = 'one' where id = 1")
    stage.run("insert into people values (2, 20, 'two') on conflict (id) do update set name = 'two'")
    stage.run("delete from people where id = 4", "delete from people where id = 3")
    seq = stage.arrive()
    after = people.position()
    stage.log.execute(
        "update sequin_events set action = case action when 'delete' then action else 'read' end,"
        " metadata = case action when 'delete' then '{\"recovered\": {}}'::jsonb end where seq > %s and seq <= %s"
        " and source_table_name = 'people'",
        [after, seq],
    )
    people.run("delete from people where id in (1, 3)")
    drain(people.applier(["people"]))
    assert people.rows("select id, name, own from people order by id") == [
        (1, "one", "new"),
        (2, "two", "of 2"),
        (5, "name 5", "of 5"),
        (6, "six", "new"),
    ]


@pytest.mark.parametrize("events", [1, 1000])
def test_a_unique_value_that_changed_hands_in_a_gap(stage: Stage, people: Follower, events: int):
    """Which row has it now may be in the log before what has become of the row that had it."""
    applier = people.applier(["people"], events=events)
    stage.run("delete from people where id = 1", "update people set code = 77 where id = 2")
    stage.arrive()
    gone = people.position()
    [row] = stage.look("select max(seq) as seq from sequin_events")
    stage.log.execute("update sequin_events set source_table_oid = 1 where seq > %s and seq <= %s", [gone, row["seq"]])
    stage.run("insert into people values (6, 10, 'six')", "update people set code = 20 where id = 3")
    stage.run("update people set name = 'two' where id = 2", "insert into people values (1, 0, 'x')")
    stage.run("delete from people where id = 1")
    seq = stage.arrive()
    stage.log.execute(
        "update sequin_events set metadata = '{\"recovered\": {}}' where seq > %s and seq <= %s", [row["seq"], seq]
    )
    drain(applier)
    rows = "select id, code, name from people order by id"
    assert people.rows(rows) == stage.source.execute(rows.encode()).fetchall()
    assert people.rows("select own from people where id = 3") == [("of 3",)]


def test_while_a_table_is_filled_nothing_is_missing(stage: Stage, people: Follower):
    stage.run("update people set name = 'here' where id = 1", "delete from people where id = 2")
    stage.run("update people set name = 'whole' where id = 3", "insert into people values (7, 70, 'seven')")
    stage.run("update people set id = 8 where id = 4")
    seq = stage.arrive()
    people.run("delete from people where id in (2, 3, 4)", "insert into people values (7, 7, 'read before')")
    wanted = {oid(stage, "people"): TableToFollow("public", "people", filled_upto=seq)}
    drain(people.applier(wanted))
    assert people.rows("select id, code, name from people order by id") == [
        (1, 10, "here"),
        (3, 30, "whole"),
        (5, 50, "name 5"),
        (7, 70, "seven"),
        (8, 40, "name 4"),
    ]


@in_one_way
def test_a_parked_event_stops_it_and_messages_do_not(stage: Stage, people: Follower):
    stage.run("update people set name = 'one' where id = 1")
    stage.run("select pg_logical_emit_message(true, 'note', 'text')")
    stage.run("update people set name = 'two' where id = 2")
    stage.arrive()
    seq = seq_of(stage, "people", "update")
    stage.log.execute("update sequin_events set record = '{}', metadata = '{\"parked\": 1}' where seq = %s", [seq])
    with pytest.raises(NotFollowableError) as stopped:
        drain(people.applier(["people"]))
    assert (stopped.value.why, stopped.value.seq) == ("parked", seq)
    assert people.rows("select name from people where id < 3 order by id") == [("one",), ("name 2",)]


@in_one_way
def test_no_transaction_begins_after_the_last_that_is_wanted(stage: Stage, people: Follower):
    stage.transaction("update people set name = 'a' where id = 1", "update people set name = 'a' where id = 2")
    seq = seq_of_next(stage, people)
    stage.run("update people set name = 'b' where id = 3")
    stage.arrive()
    applier = people.applier(["people"])
    applied = applier.apply(seq)
    assert applied is not None
    assert applier.apply(seq) is None
    assert people.rows("select name from people where id < 4 order by id") == [("a",), ("a",), ("name 3",)]


def seq_of_next(stage: Stage, there: Follower) -> int:
    """The first event that a follower does not have yet."""
    stage.arrive()
    [row] = stage.look("select min(seq) as seq from sequin_events where seq > %s", there.position())
    return int(row["seq"])


@in_one_way
def test_what_the_follower_refuses_is_named(stage: Stage, people: Follower):
    people.run("alter table people add check (name <> 'refused')")
    stage.run("update people set name = 'fine' where id = 1", "update people set name = 'refused' where id = 2")
    stage.arrive()
    applier = people.applier(["people"])
    with pytest.raises(StatementRefusedError, match=r"table public\.people.*violates check constraint"):
        drain(applier)
    assert people.rows("select name from people where id < 3 order by id") == [("fine",), ("name 2",)]


@in_one_way
def test_what_a_follower_must_have(stage: Stage, cluster: Cluster):
    made(stage, "create table needed (id int primary key, n int)")
    stage.run("insert into needed values (1, 1)")
    stage.arrive()
    for statement, said in (
        ("select 1", "has no table public.needed"),
        ("create table needed (id int, n int)", "no unique index on its key"),
        ("create table needed (id int primary key deferrable, n int)", "no unique index on its key"),
    ):
        with follower(stage, cluster, statement) as there, pytest.raises(FollowerError, match=said):
            there.applier(["needed"])
    with follower(stage, cluster, "create table needed (id int primary key)") as there:
        with pytest.raises(NotFollowableError) as before:  # its first event: the log does not know what it was
            drain(there.applier(["needed"]))
        assert before.value.why == "unknown"
        [version] = stage.look(
            "select epoch, from_lsn, from_idx from pipeline.relations where table_name = 'needed'"
            " order by id desc limit 1"
        )
        formed = TableToFollow("public", "needed", reached=ReachedVersion(HistoryPlace(*version.values())))
        with pytest.raises(FollowerError, match="has no column n"):
            there.applier({oid(stage, "needed"): formed})


@in_one_way
def test_a_schema_of_a_newer_server_is_refused(stage: Stage, cluster: Cluster):
    with follower(stage, cluster) as there, position.connect(there.dsn) as session:
        position.install(session)
        there.run(f"comment on schema pipeline_follower is 'version {position.SCHEMA_VERSION + 1}'")
        with pytest.raises(FollowerError, match="from a newer server"):
            position.install(session)


@in_one_way
def test_events_of_another_source_are_passed_over(stage: Stage, cluster: Cluster):
    table = "create table mine (id int primary key)"
    made(stage, table, "create table theirs (id int primary key)")
    stage.run("insert into mine values (1)")
    for number in range(20):
        stage.run(f"insert into theirs values ({number})")
    stage.transaction("insert into mine values (2)", "insert into theirs values (20)", "insert into mine values (3)")
    stage.run("insert into theirs select generate_series(30, 60)")
    stage.arrive()
    stage.log.execute(
        "update sequin_events set source_database_id = gen_random_uuid() where source_table_name = 'theirs'"
    )
    with follower(stage, cluster, table) as there:
        drain(there.applier(["mine"], events=5))
        assert there.rows("select id from mine order by id") == [(1,), (2,), (3,)]


@in_one_way
def test_tables_that_get_their_first_events_while_others_are_looked_at(
    stage: Stage, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    """Each growth of the history is followed by the next one, so none that is planned is the last."""
    names = [f"first_{number}" for number in range(4)]
    tables = [f"create table {name} (id int primary key)" for name in names]
    begins = made(stage, *tables)
    with follower(stage, cluster, *tables, seq=begins) as there:
        seen = list[int]()

        def look() -> None:
            [row] = stage.look("select max(id) as newest from pipeline.relations")
            seen.append(row["newest"])

        applier = there.applier(names, on_history=look)
        pending, read = iter(names), LogApplier.read_tables

        def insert() -> None:
            if (name := next(pending, None)) is not None:
                stage.run(f"insert into {name} values (1)")
                stage.arrive()

        def read_and_insert(self: LogApplier) -> None:
            insert()
            read(self)
            insert()

        insert()
        monkeypatch.setattr(LogApplier, "read_tables", read_and_insert)
        drain(applier)
        for name in names:
            assert there.rows(f"select id from {name}") == [(1,)], name
        look()
        assert seen[-2] == seen[-1]


def test_a_key_in_a_partition_whose_columns_are_in_another_order(stage: Stage, cluster: Cluster):
    tables = (
        "create table turned (id int, area text, primary key (id, area)) partition by list (area)",
        "create table turned_a (area text not null, id int not null)",
        "alter table turned attach partition turned_a for values in ('a')",
        "create table turned_b partition of turned default",
    )
    begins = made(stage, *tables)
    with follower(stage, cluster, *tables, seq=begins) as there:
        applier = there.applier(["turned"])
        stage.transaction(
            "insert into turned values (1, 'a'), (2, 'a')",
            "update turned set id = 3 where id = 1",
            "update turned set area = 'b' where id = 3",
            "update turned set id = 4 where id = 2",
        )
        stage.arrive()
        drain(applier)
        assert there.rows("select id, area from turned order by id") == [(3, "b"), (4, "a")]


def test_deferrable_keys_that_change_places(stage: Stage, cluster: Cluster):
    tables = (
        "create table places (id int primary key deferrable, note text)",
        "alter table places replica identity full",
    )
    begins = made(stage, *tables)
    with follower(stage, cluster, *tables, seq=begins) as there:
        applier = there.applier(["places"])
        stage.transaction(
            "insert into places values (1, 'a'), (2, 'b'), (3, 'c')",
            "update places set id = 3 - id where id < 3",
            "delete from places where id = 1",
            "update places set note = 'd' where id = 3",
        )
        stage.arrive()
        drain(applier)
        assert there.rows("select id, note from places order by id") == [(2, "a"), (3, "d")]


@pytest.mark.long
def test_tables_of_many_columns_are_followed(stage: Stage, cluster: Cluster):
    numbers = ", ".join(f"c{n} int default {n}" for n in range(1598))
    tables = (
        f"create table wide (id int primary key, note text, {numbers})",
        f"create table wide_rows (note text, doc json, {numbers})",
    )
    made(stage, *tables, "alter table wide_rows replica identity full")
    with follower(stage, cluster, *tables) as there:
        applier = there.applier(["wide", "wide_rows"])
        for statement in (
            "insert into wide select g, 'a' from generate_series(1, 5) g",
            "insert into wide_rows select 'row ' || g, '{\"a\" : 1}' from generate_series(1, 3) g",
            "update wide set c1597 = -1, note = 'b' where id in (1, 2)",
            "update wide set id = 7, c0 = null where id = 3",
            "delete from wide where id = 4",
            "update wide_rows set c0 = null, doc = '{\"a\" : 2}' where note = 'row 1'",
            "update wide_rows set c1597 = -1 where note in ('row 1', 'row 2')",
            "delete from wide_rows where note in ('row 2', 'row 3')",
        ):
            stage.run(statement)
        stage.arrive()
        drain(applier)
        for table in ("wide", "wide_rows"):
            query = f"select t::text from {table} t order by 1"
            assert there.rows(query) == stage.source.execute(query.encode()).fetchall()
