"""A table is copied again while the others follow the log: exactly, and no reader sees half of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import psycopg
import pytest

from pipeline.errors import FollowedTablesChangedError
from pipeline.followers.applying import position
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.copying import copies, replacements
from pipeline.followers.copying.replacements import TableReplacements
from pipeline.followers.copying.staged_rows import StagedRows
from pipeline.followers.operating import resync as resync_follower
from pipeline.followers.running import copier, following
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.background import BackgroundThread
from tests.fixtures.copying import WRITTEN, WRITTEN_TABLES, Copying, copying, more, rows, writing
from tests.fixtures.following import oid
from tests.fixtures.gates import Gate
from tests.fixtures.postgres import Cluster, temporary_server
from tests.fixtures.stage import Stage, databases
from tests.fixtures.standby import have_commits_wait
from tests.fixtures.waiting import eventually

THINGS = "create table things (id int primary key, name text, code int unique)"
BAGS = "create table bags (a int, b text, d json)"
OTHERS = "create table others (id int primary key)"
FULL = "alter table bags replica identity full"
ROWS = 50
DROPPED = """
    insert into pipeline.retention (events_table, dropped_below) values ('public.sequin_events', %s)
    on conflict (events_table) do update set dropped_below = excluded.dropped_below
"""
ENDED = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where application_name = 'pipeline copier' and datname = current_database()
"""
PHASES = {
    "before it is read": (TableReplacements, "_staged"),
    "once it was read": (StagedRows, "replace"),
    "before the log is applied": (TableReplacements, "_catch_up"),
}


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    with databases(cluster, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.run(*WRITTEN, THINGS, BAGS, FULL, OTHERS)
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
    monkeypatch.setattr(copier, "REST_SECONDS", 0.05)
    monkeypatch.setattr(replacements, "LOCK_TIMEOUT", "300ms")


@pytest.fixture
def things(stage: Stage, cluster: Cluster) -> Iterator[Copying]:
    """One that follows `things`, of which all rows have another name and code there, `bags` and `others`."""
    values = f"generate_series(1, {ROWS}) n"
    bags = f"insert into bags select n % 5, 'b', '{{\"n\":  1}}' from {values}"
    stage.run("truncate things, bags, others", f"insert into things select n, 'source', n + 100 from {values}", bags)
    stage.arrive()
    there = (
        "create table things (own text default 'none', code int unique, name text, id int primary key)",
        f"insert into things select 'kept', n + 101, 'follower', n from {values}",
    )
    tables = ["things", "bags", "others"]
    with copying(stage, cluster, *there, BAGS, bags, OTHERS, tables=tables, copy="none") as made:
        yield made


def resync(made: Copying, *tables: str) -> None:
    resync_follower.resync(made.stage.log, made.name, [f"public.{table}" for table in tables])


def follows(made: Copying, number: int) -> None:
    """What is written to `others` arrives."""
    made.stage.run(f"insert into others values ({number})")
    made.stage.arrive()
    eventually(lambda: made.look.execute("select from others where id = %s", [number]).rowcount == 1)


def begun(made: Copying) -> None:
    """Once it follows."""
    eventually(lambda: made.found.state == "following")


def write(stage: Stage, truncates: bool) -> None:
    """Changes of every kind, which move unique values between rows."""
    if truncates:
        stage.run("update things set name = 'before it is emptied'", "truncate things, bags")
        stage.run("insert into things values (7, 'after', 7), (8, 'after', 8)")
        stage.run("insert into bags values (1, 'after', null), (1, 'after', null)")
    stage.transaction(
        "update things set code = -1 where id = 7",
        "update things set code = 107 where id = 8",
        "update things set code = 108 where id = 7",
    )
    stage.run(
        "update things set id = id + 1000 where id between 10 and 12",
        "delete from things where id between 20 and 22",
        "insert into things values (20, 'again', 2000)",
        "update things set name = 'changed' where id = 30",
        "insert into bags select 1, 'b', '{\"n\":  1}' from generate_series(1, 3)",
        "update bags set b = 'changed' where a = 2",
        "delete from bags where ctid = (select min(ctid) from bags where a = 3)",
    )


def test_it_becomes_equal_and_keeps_columns_of_its_own(stage: Stage, things: Copying):
    with things.running():
        begun(things)
        things.look.execute("delete from things where id <= 5")
        things.look.execute("update things set own = 'touched' where id = 6")
        things.look.execute("insert into things (id, name) values (1000, 'theirs')")
        resync(things, "things")
        stage.run("update things set name = 'changed' where id = 7", "insert into others values (1)")
        things.become_equal()
        eventually(lambda: things.table("things").state == "following")
        owned = things.look.execute("select id, own from things where id < 9 order by id").fetchall()
        assert owned == [*((number, "none") for number in range(1, 6)), (6, "touched"), (7, "kept"), (8, "kept")]


@pytest.mark.parametrize(
    ("phase", "truncates"),
    [
        pytest.param(
            phase,
            truncates,
            id=f"{phase}-{'emptied' if truncates else 'changed'}",
            marks=[pytest.mark.long] * (truncates != (number == 1)),
        )
        for number, phase in enumerate(PHASES)
        for truncates in (False, True)
    ],
)
def test_what_is_written_meanwhile_arrives_once(
    stage: Stage, things: Copying, monkeypatch: pytest.MonkeyPatch, phase: str, truncates: bool
):
    """Others go on, readers see the rows of before, and may be in the middle of that."""
    with ExitStack() as stack:
        stack.enter_context(things.running())
        begun(things)
        reader = stack.enter_context(psycopg.connect(things.look.info.dsn))
        gate = stack.enter_context(Gate(monkeypatch, *PHASES[phase]))
        names = "select name, count(*)::int from things group by name"
        reader.execute("set transaction isolation level repeatable read")
        assert reader.execute(names.encode()).fetchall() == [("follower", ROWS)]
        resync(things, "things", "bags")
        gate.reach()
        write(stage, truncates)
        follows(things, 1)
        eventually(lambda: things.table("things").state == things.found.state == "copying")
        assert things.look.execute(names.encode()).fetchall() == [("follower", ROWS)]
        gate.open()
        things.become_equal()
        assert reader.execute(names.encode()).fetchall() == [("follower", ROWS)]
        write(stage, truncates=False)
        things.become_equal()


@pytest.mark.parametrize("phase", PHASES)
def test_a_copy_that_is_broken_off_begins_anew(
    stage: Stage, things: Copying, monkeypatch: pytest.MonkeyPatch, phase: str
):
    with things.running(), Gate(monkeypatch, *PHASES[phase]) as gate:
        begun(things)
        resync(things, "things", "bags")
        gate.reach()
        write(stage, truncates=False)
        stage.arrive()
        assert things.look.execute(ENDED).rowcount == 1
        gate.open()
        things.become_equal()
        left = "select from pg_class where relname = 'pipeline_staged'"
        eventually(lambda: things.look.execute(left).rowcount == 0)  # a moment after the copy has its place


def test_the_applier_waits_while_a_copy_takes_its_place(stage: Stage, things: Copying, monkeypatch: pytest.MonkeyPatch):
    with things.running(), Gate(monkeypatch, copies, "finish_replacement") as gate:
        begun(things)
        resync(things, "things")
        gate.reach()
        before = here(things)
        write(stage, truncates=False)
        stage.arrive()
        eventually(lambda: is_held_up(things) or here(things) != before)
        gate.open()
        things.become_equal()


def here(made: Copying) -> FollowerPosition:
    found = position.find(made.look, made.found.source_id, made.name)
    assert found is not None
    return found


def is_held_up(made: Copying) -> bool:
    query = "select from pg_stat_activity where application_name = 'pipeline applier' and wait_event_type = 'Lock'"
    return made.look.execute(query).rowcount > 0


@pytest.mark.long
def test_writers_go_on_while_tables_are_copied_anew(stage: Stage, cluster: Cluster):
    with ExitStack() as stack:
        writers = stack.enter_context(writing(stage, range(4)))
        stage.arrive()
        made = stack.enter_context(copying(stage, cluster, *WRITTEN, tables=WRITTEN_TABLES))
        stack.enter_context(made.running())
        stack.enter_context(made.running())  # one of them is a zombie
        eventually(partial(copied_since, made, {}), 120)
        for _ in range(3):
            before = made.copies()
            resync(made, *WRITTEN_TABLES)
            more(writers)
            eventually(partial(copied_since, made, before), 120)
        for writer in writers:
            writer.stopped.set()
            writer.join()
        made.become_equal()


def copied_since(made: Copying, before: dict[int, str]) -> bool:
    """Whether all of its tables have been, while the log goes on."""
    made.stage.arrive()
    now = made.copies()
    return made.is_copied() and not now.items() & before.items()


class Reader(BackgroundThread):
    """Looks at a table all the time, and keeps what it saw."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn, self.seen = dsn, list[tuple[int, str]]()

    def work(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as there:
            while not self.stopped.is_set():
                query = "select count(*), string_agg(distinct name, ',' order by name) from things"
                self.seen += [row for row in there.execute(query).fetchall() if row not in self.seen[-1:]]


def test_a_reader_sees_the_old_state_and_then_the_new_one(stage: Stage, things: Copying):
    with things.running(), Reader(things.look.info.dsn) as reader:
        begun(things)
        resync(things, "things")
        things.become_equal()
        eventually(lambda: reader.seen[-1:] == [(ROWS, "source")])
    assert reader.seen == [(ROWS, "follower"), (ROWS, "source")]


def test_others_go_on_while_it_waits_and_retention_is_told(stage: Stage, things: Copying):
    """A lock at the source is named, and so is a session that uses the table at the follower."""
    with things.running(), psycopg.connect(stage.config.source) as holder:
        begun(things)
        follows(things, 1)
        begins = things.stage.arrive()  # with a mark behind it, which the position goes past too
        eventually(lambda: (here(things).seq, things.found.seq) == (begins, begins))
        holder.execute("lock table things in access exclusive mode")
        resync(things, "things")
        eventually(lambda: f"pid {holder.info.backend_pid} " in (things.table("things").reason or ""))
        follows(things, 2)
        assert here(things).seq > begins
        reports_once_more(things)
        assert (things.found.seq, things.found.state, things.table("others").state) == (begins, "copying", "following")
        holder.rollback()
        things.become_equal()
        eventually(lambda: (things.found.state, things.table("things").reason) == ("following", None))
        with psycopg.connect(things.look.info.dsn) as user:
            user.execute("lock table things in access exclusive mode")
            resync(things, "things")
            eventually(lambda: f"pid {user.info.backend_pid} " in (things.table("things").reason or ""))
            follows(things, 3)
            user.rollback()
        things.become_equal()


def reports_once_more(made: Copying) -> None:
    """Until its applier has said where it is, since this was called."""
    for _ in range(2):
        before = made.found.reported_at
        eventually(lambda before=before: made.found.reported_at != before)  # type: ignore[misc]


def test_a_writer_at_the_follower_delays_only_its_own_table(
    stage: Stage, things: Copying, monkeypatch: pytest.MonkeyPatch
):
    with things.running(), Gate(monkeypatch, TableReplacements, "_catch_up") as gate:
        begun(things)
        resync(things, "things")
        gate.reach()
        with psycopg.connect(things.look.info.dsn) as user:
            user.execute("insert into things (id) values (3000)")
            stage.run("insert into things values (3000, 'source', 3000)")
            stage.arrive()
            gate.open()
            follows(things, 2)
            eventually(lambda: f"pid {user.info.backend_pid} " in (things.table("things").reason or ""))
            user.rollback()
        things.become_equal()
        with psycopg.connect(things.look.info.dsn) as user:
            things.look.execute("update things set name = 'differs'")
            user.execute("select from things for update")
            resync(things, "things")
            eventually(lambda: f"pid {user.info.backend_pid} " in (things.table("things").reason or ""))
            user.rollback()
        things.become_equal()


def test_one_that_is_wanted_once_more_begins_anew(stage: Stage, things: Copying, monkeypatch: pytest.MonkeyPatch):
    with things.running(), Gate(monkeypatch, TableReplacements, "_catch_up") as gate:
        begun(things)
        table = oid(stage, "things")
        resync(things, "things")
        gate.reach()
        [before] = copies.requested(things.look, here(things))
        resync(things, "things")
        assert copies.requested(things.look, here(things)) == [before]
        copies.request(things.look, here(things), [table])
        [after] = copies.requested(things.look, here(things))
        assert after.generation > before.generation
        assert things.copies() == {}
        with psycopg.connect(stage.config.source) as holder:
            holder.execute("lock table things in access exclusive mode")
            gate.open()
            eventually(lambda: f"pid {holder.info.backend_pid} " in (things.table("things").reason or ""))
            assert things.copies() == {}
        things.become_equal()
        assert things.copies().keys() == {table}


def test_a_copy_requested_while_applying_skips_events_from_there(stage: Stage, things: Copying):
    with things.running():
        begun(things)
    stage.run("update things set name = 'before' where id = 1")
    stage.arrive()
    with position.connect(things.look.info.dsn) as session, session.transaction():
        before = here(things)
        copies.request(session, before, [oid(stage, "things")])
    with pytest.raises(FollowedTablesChangedError):
        position.require_unmoved(things.look, before)
    with pytest.raises(FollowedTablesChangedError):
        copies.request(things.look, before, [])
    assert things.look.execute("select distinct name from things").fetchall() == [("follower",)]
    with things.running():
        things.become_equal()


def test_one_that_is_wanted_while_an_applier_begins_is_passed_over(
    stage: Stage, things: Copying, monkeypatch: pytest.MonkeyPatch
):
    """The applier has read which tables follow the log, and not yet where it is."""
    with (
        Gate(monkeypatch, TableReplacements, "_staged") as copied,
        Gate(monkeypatch, following, "LogApplier") as applies,
        things.running(),
    ):
        applies.reach()
        resync(things, "things")
        stage.run("update things set name = 'meanwhile'")
        stage.arrive()
        applies.open()
        copied.reach()
        follows(things, 1)
        assert things.look.execute("select distinct name from things").fetchall() == [("follower",)]
        copied.open()
        things.become_equal()


def test_a_table_that_stopped_it_does_so_no_more(stage: Stage, things: Copying):
    with things.running():
        begun(things)
        things.look.execute("delete from things where id = 9")
        stage.run("update things set code = 9 where id = 9")
        stage.arrive()
        eventually(lambda: things.found.state == "stopped")
        with psycopg.connect(stage.config.source) as holder:
            holder.execute("lock table things in access exclusive mode")
            resync(things, "things")
            follows(things, 1)
        things.become_equal()


def test_what_the_log_lacks_of_a_table_is_copied(stage: Stage, things: Copying):
    """A parked event is of one table, a transaction that the source could not send may be of all."""
    stage.run("update things set name = 'parked' where id = 1", "update bags set b = 'skipped'")
    stage.arrive()
    newest = "select max(seq) as seq from sequin_events where source_table_name = %s"
    for table, mark in (("things", "parked"), ("bags", "skipped")):
        [row] = stage.look(newest, table)
        parked = "update sequin_events set record = '{}', metadata = jsonb_build_object(%s::text, 1) where seq = %s"
        stage.log.execute(parked, [mark, row["seq"]])
    with things.running():
        eventually(lambda: "could not be written to the log" in (things.found.reason or ""))
        resync(things, "things")
        eventually(lambda: "could not send" in (things.found.reason or ""))
        assert eventually(lambda: things.table("things").state == "copying")
        resync(things, "bags")
        eventually(lambda: len(things.copies()) == 2)
        eventually(lambda: "could not send" in (things.found.reason or ""))
        resync(things, "others")
        things.become_equal()


def test_a_paused_one_takes_it_up_once_it_goes_on(stage: Stage, things: Copying):
    with things.running():
        begun(things)
    resync(things, "things")
    assert (things.table("things").state, things.table("bags").state) == ("copying", "following")
    with things.running():
        things.become_equal()


def test_one_that_began_from_the_log_reads_the_source(stage: Stage, cluster: Cluster):
    stage.run("truncate things", "insert into things values (1, 'one', 1), (2, 'two', 2)")
    stage.arrive()
    there = "insert into things values (1, 'one', 1), (2, 'two', 2)"
    with copying(stage, cluster, THINGS, there, tables=["things"], copy="log") as made, made.running():
        made.become_equal()
        made.look.execute("delete from things")
        stage.run("update things set name = 'other' where id = 1")
        resync(made, "things")
        made.become_equal()
        stage.run("delete from things where id = 2")
        made.become_equal()


def test_a_table_that_is_missing_is_made_with_its_keys(stage: Stage, things: Copying):
    with things.running():
        begun(things)
        things.look.execute("drop table things")
        resync(things, "things")
        things.become_equal()
        assert things.look.execute("select from pg_index where indrelid = 'things'::regclass").rowcount == 2


def test_a_table_of_partitions(stage: Stage, cluster: Cluster):
    stage.run("truncate parted", "insert into parted values (1, 1), (101, 1)")
    stage.arrive()
    there = [*WRITTEN, "insert into parted values (2, 2), (101, 2)", "alter table parted add own text default 'own'"]
    with copying(stage, cluster, *there, tables=["parted"], copy="none") as made, made.running():
        begun(made)
        made.look.execute("update parted set own = 'kept'")
        resync(made, "parted")
        stage.run("truncate parted_low", "update parted set id = 50 where id = 101")
        made.become_equal()
        assert made.look.execute("select id, own from parted").fetchall() in ([(50, "kept")], [(50, "own")])


def test_rows_that_the_follower_does_not_take_are_named(stage: Stage, things: Copying):
    with things.running():
        begun(things)
        things.look.execute("alter table things add check (name <> 'source') not valid")
        resync(things, "things")
        eventually(lambda: 'violates check constraint "things_name_check"' in (things.table("things").reason or ""))
        follows(things, 1)
        assert things.look.execute("select distinct name from things").fetchall() == [("follower",)]
        things.look.execute("alter table things drop constraint things_name_check")
        things.become_equal()


def test_a_table_that_was_dropped_at_the_source_stays_as_it_is(stage: Stage, cluster: Cluster):
    stage.run("create table gone (id int primary key)")
    publish_new_tables(stage.config)
    stage.run("insert into gone values (1)")
    stage.arrive()
    gone = "create table gone (id int primary key)"
    with copying(stage, cluster, gone, tables=["gone"], copy="none") as made:
        stage.run("insert into gone values (2)", "drop table gone")
        with made.running():
            begun(made)
            resync(made, "gone")
            eventually(made.copies)
            stage.arrive()
            eventually(lambda: made.found.state == "following")
        assert made.look.execute("select id from gone").fetchall() in ([], [(2,)])


def test_what_is_in_the_log_before_the_copy_can_see_it_is_applied_to_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    """A commit that waits for a synchronous standby is streamed, and in no snapshot."""
    with temporary_server(18) as source, databases(source, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.run("set synchronous_commit = local", OTHERS)
        stage.start()
        publish_new_tables(stage.config)
        with ExitStack() as stack:
            made = stack.enter_context(copying(stage, cluster, OTHERS, tables=["others"], copy="none"))
            stack.enter_context(made.running())
            begun(made)
            gate = stack.enter_context(Gate(monkeypatch, TableReplacements, "_staged"))
            resync(made, "others")
            gate.reach()
            have_commits_wait(stage)
            waits = stack.enter_context(Committing(config.source, "insert into others values (1)"))
            stack.callback(stage.run, "alter system reset synchronous_standby_names", "select pg_reload_conf()")
            waiting = "select from pg_stat_activity where wait_event = 'SyncRep' and query like 'insert into others%'"
            eventually(lambda: stage.source.execute(waiting).rowcount == 1)
            stage.arrive()
            assert waits.is_alive()
            gate.open()
            eventually(made.is_copied)
            eventually(lambda: rows(made.look, "others") == ["(1)"])


class Committing(BackgroundThread):
    """A statement, whose commit may have to wait."""

    def __init__(self, dsn: str, statement: str) -> None:
        super().__init__()
        self._dsn, self._statement = dsn, statement

    def work(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as source:
            source.execute(self._statement.encode())


def test_a_follower_behind_the_logs_start_continues_with_new_copies(stage: Stage, things: Copying):
    """A follower that was restored is where it was then, and the log is kept from where it had been."""
    with things.running():
        begun(things)
        resync(things, "things")
        things.become_equal()
    restored = here(things)
    stage.run("insert into others values (1)", "update things set name = 'changed' where id = 7")
    head = stage.arrive()
    with dropped(stage, head), things.running():
        eventually(lambda: things.found.state == "stopped")
        assert f"the log is kept from seq {head} on" in str(things.found.reason)
        assert things.found.remedy == f"copy all tables again: `pipeline followers resync {things.name} '*'`"
        resync(things, "things", "bags")  # one is left for which the log is needed
        eventually(lambda: "waits until all tables are copied again" in str(things.table("things").reason))
        eventually(lambda: things.found.state == "stopped")
        assert here(things) == replace(restored, generation=restored.generation + 1)
        resync(things, "others")
        eventually(lambda: things.found.state == "following")
        follows(things, 2)
        things.become_equal()


@pytest.mark.parametrize("phase", PHASES)
def test_what_a_copy_still_needs_is_not_dropped(
    stage: Stage, things: Copying, monkeypatch: pytest.MonkeyPatch, phase: str
):
    """The others go on meanwhile, far beyond it, and retention drops all that it may."""
    with things.running(), Gate(monkeypatch, *PHASES[phase]) as gate:
        begun(things)
        resync(things, "things")
        gate.reach()
        write(stage, truncates=False)
        for number in range(3):
            follows(things, number)
        write(stage, truncates=False)
        [kept] = stage.look(
            "select needs_after from pipeline.readers where kind = 'follower' and name = %s", things.name
        )
        seq = here(things).seq
        assert seq > kept["needs_after"]
        with dropped(stage, kept["needs_after"] + 1):
            gate.open()
            eventually(lambda: things.copies() != {})
            things.become_equal()


@contextmanager
def dropped(stage: Stage, below: int) -> Iterator[None]:
    """Retention has dropped the events below this seq."""
    stage.log.execute(DROPPED, [below])
    try:
        yield
    finally:
        stage.log.execute("delete from pipeline.retention")
