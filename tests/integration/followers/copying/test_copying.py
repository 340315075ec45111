"""A copy of the source and the log after it make a follower exactly the source, whatever is written meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import psycopg
import pytest

from pipeline.followers import registry
from pipeline.followers.running import copier, following
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.background import BackgroundThread
from tests.fixtures.copying import WRITTEN, WRITTEN_TABLES, Copying, copying, more, writing
from tests.fixtures.postgres import Cluster, temporary_server
from tests.fixtures.stage import Stage, databases
from tests.fixtures.standby import have_commits_wait
from tests.fixtures.waiting import eventually

THINGS = "create table things (id int primary key, name text)"


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    # The log gets there when a test wants it: what is written at once would be in it by itself.
    given = {"snapshot": "never", "small_batches": "staged"}
    with databases(cluster, cluster, **given) as config, Stage(config) as stage:
        stage.run(*WRITTEN)
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


@pytest.fixture
def things(stage: Stage, cluster: Cluster) -> Iterator[Copying]:
    """A follower of a table with three rows that the log has too, which is not copied yet."""
    stage.run("drop table if exists things", THINGS)
    publish_new_tables(stage.config)
    stage.run("insert into things select n, 'before' from generate_series(1, 3) n")
    stage.arrive()
    with copying(stage, cluster, THINGS, tables=["things"]) as made:
        yield made


class Statement(BackgroundThread):
    """One at the source, which may have to wait."""

    def __init__(self, stage: Stage, statement: str) -> None:
        super().__init__()
        self._dsn, self._statement = stage.config.source, statement

    def work(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as source:
            source.execute(self._statement.encode())


@pytest.mark.parametrize("round_", [1, *(pytest.param(number, marks=pytest.mark.long) for number in (2, 3))])
def test_writers_go_on_during_the_copy(stage: Stage, cluster: Cluster, round_: int):
    with ExitStack() as stack:
        writers = stack.enter_context(writing(stage, [100 * round_ + number for number in range(6)]))
        stage.arrive()
        made = stack.enter_context(copying(stage, cluster, *WRITTEN, tables=WRITTEN_TABLES))
        write_to_each(stage, -10 * round_)
        more(writers)
        with made.running():
            eventually(made.is_copied)
            assert made.found.state == "copying"
            more(writers)
            write_to_each(stage, -10 * round_ - 1)
            for writer in writers:
                writer.stopped.set()
                writer.join()
            made.become_equal()
            eventually(lambda: made.found.state == "following")
        counted = """
            select count(*),
                count(*) filter (where pg_visible_in_snapshot(xid::text::xid8, %s::pg_snapshot)) as left_out
            from sequin_events where seq > %s and source_table_oid = %s
        """
        for oid, snapshot in made.copies().items():
            [row] = stage.look(counted, snapshot, made.begins, oid)
            assert 0 < row["left_out"] < row["count"]


def write_to_each(stage: Stage, number: int) -> None:
    """A row to each table of the writers, which may have left one of them alone."""
    stage.run(
        f"insert into pairs values ({number}, {number}, 'note')",
        f"insert into bare values ({number}, 'b', null)",
        f"insert into lines values ({number}, 'same')",
        f"insert into parted values ({number}, 0)",
    )


def test_changes_of_a_copied_table_are_applied_while_the_next_one_waits(stage: Stage, cluster: Cluster):
    tables = [f"create table {name} (id int primary key, name text)" for name in ("copied_first", "copied_next")]
    stage.run(*tables, "insert into copied_first values (1, 'before')", "insert into copied_next values (1, 'before')")
    publish_new_tables(stage.config)
    stage.arrive()
    with (
        copying(stage, cluster, *tables, tables=["copied_first", "copied_next"]) as made,
        psycopg.connect(stage.config.source) as holder,
    ):
        holder.execute("lock table copied_next in access exclusive mode")
        with made.running():
            eventually(lambda: len(made.copies()) == 1)
            stage.run("insert into copied_first values (2, 'meanwhile')", "update copied_first set name = 'meanwhile'")
            stage.arrive()
            holder.rollback()
            made.become_equal()
    stage.run("drop table copied_first, copied_next")


def test_tables_are_copied_beside_one_that_takes_long(stage: Stage, cluster: Cluster):
    """And followed, though another one is refused meanwhile."""
    names = ["beside_first", "beside_next", "beside_last"]
    tables = [f"create table {name} (id int primary key, name text)" for name in names]
    stage.run(*tables, *(f"insert into {name} values (1, 'before')" for name in names))
    publish_new_tables(stage.config)
    stage.arrive()
    with copying(stage, cluster, *tables, tables=names) as made, psycopg.connect(made.look.info.dsn) as holder:
        made.look.execute("insert into beside_last values (7, 'in the way')")
        holder.execute("lock table beside_first in access exclusive mode")
        with made.running():
            eventually(lambda: len(made.copies()) == 1)
            reason = eventually(lambda: made.table("beside_last").reason or "")
            assert "beside_last of the follower has rows" in str(reason)
            assert made.found.state == "copying"
            holder.rollback()
            eventually(lambda: made.is_followed("beside_first", "beside_next"))
            stage.run(*(f"insert into {name} values (2, 'after the copy')" for name in names))
            stage.arrive()
            eventually(lambda: made.are_equal("beside_first", "beside_next"))
            eventually(lambda: "beside_last of the follower has rows" in (made.found.reason or ""))
            assert made.look.execute("select id from beside_last").fetchall() == [(7,)]
            made.look.execute("delete from beside_last")
            made.become_equal()
    stage.run(*(f"drop table {name}" for name in names))


def test_what_the_log_has_not_yet_is_in_the_copy_and_not_applied_again(stage: Stage, things: Copying):
    stage.run(
        "insert into things values (4, 'not in the log')",
        "update things set id = 5 where id = 1",
        "delete from things where id = 2",
    )
    with things.running():
        eventually(things.is_copied)
    stage.run("insert into things values (2, 'again')", "update things set name = 'after' where id = 5")
    stage.arrive()
    with things.running():
        things.become_equal()


@pytest.mark.parametrize("table", ["lines", "bare"])
def test_rows_without_a_key_arrive_once(stage: Stage, cluster: Cluster, table: str):
    with copying(stage, cluster, *WRITTEN, tables=[table]) as made:
        insert = f"insert into {table} (a, b) values (1, 'same'), (1, 'same'), (2, 'other')"
        stage.run(insert, insert)
        with made.running():
            eventually(made.is_copied)
        stage.run(insert)
        stage.arrive()
        with made.running():
            made.become_equal()


def test_a_truncate_before_the_copy_is_in_it(stage: Stage, things: Copying):
    stage.run("truncate things", "insert into things values (7, 'after the truncate')")
    stage.arrive()
    with things.running():
        eventually(things.is_copied)
        stage.run("insert into things values (8, 'after the copy')")
        things.become_equal()


def test_a_truncate_waits_for_the_copy(stage: Stage, things: Copying):
    with ExitStack() as stack:
        # A row that is not committed keeps COPY waiting for what becomes of its key.
        other = stack.enter_context(psycopg.connect(things.look.info.dsn))
        other.execute("insert into things values (3, 'of another user')")
        stack.enter_context(things.running())
        truncating = stack.enter_context(ExitStack())
        stack.callback(other.close)
        eventually(lambda: copy_waits(things.look))
        truncate = truncating.enter_context(Statement(stage, "truncate things"))
        eventually(lambda: is_waited_for(stage, "AccessExclusiveLock"))
        assert things.copies() == {}
        other.rollback()
        truncate.join()
        stage.run("insert into things values (9, 'after the truncate')")
        things.become_equal()
        assert things.copies()


def test_whoever_has_written_to_it_is_waited_for_and_named(stage: Stage, things: Copying):
    with psycopg.connect(stage.config.source) as open_one, things.running():
        open_one.execute("insert into things values (10, 'long')")
        pid = open_one.info.backend_pid
        eventually(lambda: f"pid {pid} " in (things.table("things").reason or ""))
        assert things.found.state == "copying"
        assert things.copies() == {}
        stage.run("update things set name = 'meanwhile' where id = 1")
        open_one.commit()
        things.become_equal()
        stage.arrive()  # or only the next look of a source at rest shows that the log is past the copy
        eventually(lambda: things.table("things").state == "following")
        assert things.table("things").reason is None


def test_a_session_that_locks_it_is_named(stage: Stage, things: Copying):
    with psycopg.connect(stage.config.source) as holder, things.running():
        holder.execute("lock table things in access exclusive mode")
        eventually(lambda: f"pid {holder.info.backend_pid} " in (things.table("things").reason or ""))
        holder.rollback()
        things.become_equal()


def test_rows_are_refused_without_truncate(stage: Stage, things: Copying):
    things.look.execute("insert into things values (1, 'theirs')")
    with things.running():
        reason = stopped(things)
        assert "table public.things of the follower has rows" in reason
        things.look.execute("delete from things")
        things.become_equal()


def test_rows_are_removed_with_truncate(stage: Stage, things: Copying, cluster: Cluster):
    theirs = "insert into things values (1, 'theirs'), (99, 'theirs')"
    with copying(stage, cluster, THINGS, theirs, tables=["things"], truncate=True) as made, made.running():
        made.become_equal()


def test_a_copy_waits_for_readers_at_the_follower_before_removing_rows(stage: Stage, things: Copying, cluster: Cluster):
    theirs = "insert into things values (1, 'theirs')"
    with (
        copying(stage, cluster, THINGS, theirs, tables=["things"], truncate=True) as made,
        psycopg.connect(made.look.info.dsn) as reader,
        made.running(),
    ):
        reader.execute("select * from things")
        eventually(lambda: f"pid {reader.info.backend_pid} " in (made.table("things").reason or ""))
        reader.rollback()
        made.become_equal()


def test_a_finished_table_stays_finished(stage: Stage, cluster: Cluster):
    with (
        copying(stage, cluster, *WRITTEN, tables=["lines", "pairs"]) as made,
        psycopg.connect(stage.config.source) as holder,
    ):
        holder.execute("lock table pairs in access exclusive mode")
        with made.running():
            eventually(lambda: len(made.copies()) == 1)
        [(finished, snapshot)] = made.copies().items()
        stage.run("insert into lines values (1, 'after it')")
        holder.rollback()
        with made.running():
            made.become_equal()
        assert made.copies()[finished] == snapshot


def test_one_that_was_removed_and_added_again_begins_anew(stage: Stage, things: Copying):
    with things.running():
        things.become_equal()
    before = things.copies()
    stage.run("insert into things values (20, 'while it was none')")
    stage.arrive()
    registry.remove(stage.log, things.name)
    again = Copying(stage, things.look.info.dsn, ["things"], things.name, truncate=True)
    with again.look, again.running():
        eventually(lambda: again.copies() not in ({}, before))
        again.become_equal()


def test_columns_of_either_side_and_generated_ones(stage: Stage, cluster: Cluster):
    stage.run(
        "create table shaped (id int primary key, twice int generated always as (id * 2) stored, at timestamptz,"
        ' d json, "odd % name" text, f float8)',
    )
    publish_new_tables(stage.config)
    stage.run(
        'insert into shaped (id, at, d, "odd % name", f)'
        " select n, now(), '{\"a\":  1}', E'tab\\t \\\\ line\\n', n / 3.0 from generate_series(1, 50) n"
    )
    stage.arrive()
    there = (
        "create table shaped (own text default 'own', f float8, \"odd % name\" text, d json, at timestamptz,"
        " id int primary key, twice int generated always as (id * 2) stored)"
    )
    with copying(stage, cluster, there, tables=["shaped"]) as made, made.running():
        eventually(made.is_copied)
        stage.run("update shaped set f = 2 where id = 1")
        made.become_equal()
        assert made.look.execute("select distinct own from shaped").fetchall() == [("own",)]


def copy_waits(there: psycopg.Connection) -> bool:
    """Whether a COPY waits for a lock."""
    query = """
        select from pg_stat_activity
        where query like 'copy %' and wait_event_type = 'Lock' and datname = current_database()
    """
    return there.execute(query).rowcount > 0


def is_waited_for(stage: Stage, mode: str) -> bool:
    """Return True if a session waits for such a lock on the table."""
    query = "select from pg_locks where relation = 'things'::regclass and mode = %s and not granted"
    return stage.source.execute(query, [mode]).rowcount > 0


def test_tables_that_are_missing_are_made_as_at_the_source(
    stage: Stage, cluster: Cluster, clusters: Callable[[int], Cluster]
):
    for there in (cluster, clusters(16)):
        with copying(stage, there, tables=["parted", "pairs"]) as made, made.running():
            made.become_equal()
            assert made.look.execute("select count(*) from parted_low").rowcount == 1
            keys = made.look.execute("select count(*) from pg_index where indrelid = 'pairs'::regclass").fetchall()
            assert keys == [(2,)]


NEEDS = "create function needed(text) returns text language sql immutable as 'select $1'"


def test_what_a_table_lacks_is_named_and_holds_up_no_other(stage: Stage, cluster: Cluster):
    tables = ["moods", "needing", "at_ease"]
    stage.run(
        "create type mood as enum ('good', 'bad')",
        NEEDS,
        "create table moods (id int primary key, m mood)",
        "create table needing (id int primary key, name text)",
        "create index needing_name on needing (needed(name))",
        "create table at_ease (id serial primary key, name text unique)",
    )
    publish_new_tables(stage.config)
    rows = ("insert into moods values ($1, 'good')", "insert into needing values ($1, 'a')")
    stage.run(*(each.replace("$1", "1") for each in rows), "insert into at_ease (name) values ('a')")
    stage.arrive()
    with copying(stage, cluster, tables=tables) as made, made.running():
        eventually(lambda: made.is_followed("at_ease"))
        lacks = {"moods": 'type "public.mood"', "needing": "function public.needed(text)"}
        said = dict[str, str]()
        for table, what in lacks.items():
            found = eventually(partial(is_stopped, made, table))
            assert f"public.{table}: {what} does not exist" in (found.reason or "")
            said[table] = (
                (found.remedy or "").removeprefix("run there: `").removesuffix("`; it is tried again by itself")
            )
            assert made.found.state == "copying"
        assert "create type public.mood as enum ('good', 'bad')" in said["moods"]
        stage.run(*(each.replace("$1", "2") for each in rows), "insert into at_ease (name) values ('b')")
        stage.arrive()
        eventually(lambda: made.are_equal("at_ease"))
        for statement in said.values():
            made.look.execute(statement.encode())
        made.become_equal()
        eventually(lambda: made.found.state == "following")
        for table in tables:
            assert definitions(made.look, table) == definitions(stage.source, table)


SEARCHING = (
    "create schema looked_in",
    "create function looked_in.found(text) returns boolean language sql as 'select length($1) > 0'",
    "create function looked_in.procedural(v text) returns boolean language plpgsql as 'begin return found(v); end'",
    "set local check_function_bodies = off;"
    " create function looked_in.plain(text) returns boolean language sql as 'select found($1)'",
    "create table searching (id int primary key, name text,"
    " constraint a check (looked_in.procedural(name)), constraint b check (looked_in.plain(name)))",
)


def test_a_function_that_finds_a_name_by_its_search_path_is_named(stage: Stage, cluster: Cluster):
    stage.run(*SEARCHING, "create table beside (id int primary key)")
    publish_new_tables(stage.config)
    row = "set local search_path = public, looked_in; insert into searching values ({}, 'a')"
    stage.run(row.format(1), "insert into beside values (1)")
    stage.arrive()
    tables = ["searching", "beside"]
    given = (*SEARCHING, "create table beside (id int primary key)")
    with copying(stage, cluster, *given, tables=tables, schema="exists") as made, made.running():
        altered = "alter function looked_in.{}(text) set search_path = looked_in, pg_catalog"

        def is_named(function: str, found: Callable[[], tuple[str | None, str | None]]) -> None:
            reason, remedy = found()
            assert "function found(text) does not exist (SQLSTATE 42883)" in (reason or "")
            why = f"looked_in.{function}(text) finds found only through a search_path"
            assert remedy == f"run `{altered.format(function)}` at the follower: {why}; it is tried again by itself"

        def of_table() -> tuple[str | None, str | None]:
            return (each := is_stopped(made, "searching")).reason, each.remedy

        def of_follower() -> tuple[str | None, str | None]:
            return (each := made.found).reason, each.remedy

        for function in ("plain", "procedural"):  # what is planned comes first
            eventually(partial(is_named, function, of_table))
            eventually(lambda: made.is_followed("beside"))
            made.look.execute(altered.format(function).encode())
        made.become_equal()
        # An event needs the same.
        made.look.execute("alter function looked_in.plain(text) reset search_path")
        stage.run(row.format(2))
        stage.arrive()
        eventually(partial(is_named, "plain", of_follower))
        made.look.execute(altered.format("plain").encode())
        made.become_equal()
    stage.run("drop table searching, beside", "drop schema looked_in cascade")


def is_stopped(made: Copying, table: str) -> registry.FollowerTable:
    """The table, once it is."""
    found = made.table(table)
    assert found.state == "stopped", found
    return found


def definitions(connection: psycopg.Connection, table: str) -> list[tuple[str]]:
    """Of the indexes of a table."""
    query = "select pg_get_indexdef(indexrelid) from pg_index where indrelid = %s::regclass order by 1"
    return connection.execute(query, [table]).fetchall()


def stopped(made: Copying) -> str:
    """Why it has, once it has."""

    def reason() -> str:
        found = made.found
        assert found.state == "stopped", found
        return found.reason or ""

    return eventually(reason)


def test_truncates_of_partitions_are_in_the_copy_or_after_it(stage: Stage, cluster: Cluster):
    stage.run("truncate parted", "insert into parted values (1, 1), (101, 1)")
    stage.arrive()
    with copying(stage, cluster, *WRITTEN, tables=["parted"]) as made:
        stage.run("truncate parted_low", "insert into parted values (2, 2)")
        with made.running():
            eventually(made.is_copied)
            stage.run("truncate parted_high", "insert into parted values (102, 2)")
            made.become_equal()


def test_a_column_that_came_before_the_copy_is_in_it(stage: Stage, things: Copying):
    stage.run("update things set name = 'without it'", "alter table things add more int", "update things set more = 1")
    stage.arrive()
    things.look.execute("alter table things add more int")
    with things.running():
        eventually(things.is_copied)
        stage.run("update things set more = 2 where id = 2")
        things.become_equal()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_column_whose_first_change_comes_after_the_copy(stage: Stage, things: Copying, when: str):
    stage.run("update things set name = 'without it'")
    stage.arrive()
    if when == "before":
        stage.run("alter table things add more int")
        things.look.execute("alter table things add more int")
    with things.running():
        eventually(things.is_copied)
    if when == "after":
        stage.run("alter table things add more int")
    stage.run("update things set more = 2 where id = 2")
    stage.arrive()
    with things.running():
        things.become_equal()


def test_what_is_in_the_log_before_others_can_see_it_is_waited_for(cluster: Cluster):
    """A commit that waits for a synchronous standby is streamed, and in no snapshot."""
    with temporary_server(18) as source, databases(source, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.run("set synchronous_commit = local", THINGS)
        stage.start()
        publish_new_tables(stage.config)
        have_commits_wait(stage)
        waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep' and query like 'insert into things%'"
        with Statement(stage, "insert into things values (1, 'committed')"), ExitStack() as stack:
            stack.callback(stage.run, "alter system reset synchronous_standby_names", "select pg_reload_conf()")
            [(pid,)] = eventually(lambda: stage.source.execute(waiting).fetchall())
            stage.arrive()
            assert stage.look("select record ->> 'id' as id from sequin_events where action = 'insert'") == [
                {"id": "1"}
            ]
            with copying(stage, cluster, THINGS, tables=["things"]) as made, made.running():
                eventually(lambda: f"pid {pid} " in (made.table("things").reason or ""))
                stage.run("alter system reset synchronous_standby_names", "select pg_reload_conf()")
                made.become_equal()
                assert made.look.execute("table things").fetchall() == [(1, "committed")]


def test_tables_without_columns(stage: Stage, cluster: Cluster):
    stage.run("create table bare_rows ()")
    publish_new_tables(stage.config)
    stage.run("insert into bare_rows default values")
    stage.arrive()
    with copying(stage, cluster, tables=["bare_rows"]) as made, made.running():
        eventually(made.is_copied)
        stage.run("insert into bare_rows default values")
        head = stage.arrive()
        eventually(lambda: made.found.seq >= head)
        assert made.look.execute("select count(*) from bare_rows").fetchall() == [(2,)]


def test_a_partition_that_is_a_foreign_table_is_not_made(stage: Stage, cluster: Cluster):
    stage.run(
        "create table far (id int, area text) partition by list (area)",
        "create foreign data wrapper nowhere",
        "create server nowhere foreign data wrapper nowhere",
        "create foreign table far_a partition of far for values in ('a') server nowhere",
        "create table far_b partition of far for values in ('b')",
    )
    publish_new_tables(stage.config)
    stage.run("insert into far values (1, 'b')")
    stage.arrive()
    with copying(stage, cluster, tables=["far"]) as made, made.running():
        eventually(made.is_copied)
        assert made.look.execute("select id from far").fetchall() == [(1,)]
        assert made.look.execute("select to_regclass('far_a')").fetchall() == [(None,)]
