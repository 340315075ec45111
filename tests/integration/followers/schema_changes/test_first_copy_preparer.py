"""DDL at the source between `followers add` and a table's first copy: the follower has the table as its copy is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pipeline.followers import registry
from pipeline.followers.registry import NamedTable
from pipeline.followers.running import following
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.copying import copying
from tests.fixtures.following import oid
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.schema_changes import Changed, become_equal
from tests.fixtures.stage import Stage, databases
from tests.fixtures.waiting import eventually

CREATE = "create table $t (id int primary key, a text, b text unique, n varchar(5)); create index on $t (a)"
CHANGES = {
    "added": "alter table $t add c int; update $t set c = 1",
    "added twice": "alter table $t add c int not null default 7, add d numeric(5, 2)",
    "dropped": "alter table $t drop a",
    "renamed": "alter table $t rename a to c",
    "exchanged": "alter table $t rename a to c; alter table $t rename b to a; alter table $t rename c to b",
    "dropped and added again": "alter table $t drop b, add b int",
    "another type": "alter table $t alter b type int using 7 + id",
    "key renamed": "alter table $t rename id to number",
    "another key": "alter table $t alter b set not null, drop constraint $t_pkey, add primary key (b)",
    "all at once": "alter table $t drop n; alter table $t rename a to n; alter table $t alter n type int using 1;"
    "alter table $t add a int",
}
NAMES = {
    "another name": ("alter table $t rename to $t_x", "$t_x"),
    "another name and column": ("alter table $t rename to $t_x; alter table $t_x rename a to c", "$t_x"),
}


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


@pytest.fixture(params=["made", "found"])
def several(stage: Stage, cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[list[Changed]]:
    """Tables of one follower, for each change one, which are made, or were there, and are not copied yet."""
    with registered_tables(stage, cluster, len(CHANGES), found=request.param == "found") as made:
        yield made


@contextmanager
def registered(stage: Stage, cluster: Cluster, *, found: bool = False, **options: str) -> Iterator[Changed]:
    with registered_tables(stage, cluster, 1, found=found, **options) as [changed]:
        yield changed


@contextmanager
def registered_tables(
    stage: Stage, cluster: Cluster, count: int, *, found: bool = False, **options: str
) -> Iterator[list[Changed]]:
    tables = [unique("t") for _ in range(count)]
    create = [CREATE.replace("$t", table) for table in tables]
    stage.run(*create)
    publish_new_tables(stage.config)
    stage.run(*(f"insert into {table} values (1, 'a1', 'b1', 'n1'), (2, 'a2', 'b2', 'n2')" for table in tables))
    stage.arrive()
    patterns = tuple(f"public.{table}*" for table in tables)
    with copying(stage, cluster, *(create if found else []), tables=tables, patterns=patterns, **options) as made:
        yield [Changed(stage, made, table) for table in tables]


@contextmanager
def altered(*changes: tuple[Changed, str], also: str = "") -> Iterator[None]:
    """A follower that runs, once these were run, in one transaction, after its tables were made and before any of them
    is copied. `also`: what that transaction does to others of them, which would be copied meanwhile else.
    """
    changed, _ = changes[0]
    made = changed.made
    with psycopg.connect(changed.stage.config.source) as holder:
        for each, _ in changes:
            holder.execute(each.named("insert into $t values (3, 'a3', 'b3', 'n3')").encode())
        holder.execute(also.encode())
        holds = f"pid {holder.info.backend_pid} "
        with made.running():
            eventually(lambda: any(holds in (table.reason or "") for table in made.found.table_states))
            for each, ddl in changes:
                holder.execute(each.named(ddl).encode())
            assert made.copies() == {}
            holder.commit()
            yield


def keys(connection: psycopg.Connection, table: str) -> list[str]:
    """The first column of each unique index; one is enough for each."""
    query = """
        select distinct pg_get_indexdef(indexrelid, 1, true) from pg_index
        where indrelid = %s::regclass and indisunique order by 1
    """
    return [column for (column,) in connection.execute(query, [table]).fetchall()]


def test_columns_and_keys_are_those_of_the_copy(stage: Stage, several: list[Changed]):
    first, tables = several[0], [each.t for each in several]
    with altered(*zip(several, CHANGES.values(), strict=True)):
        first.become_equal(*tables)
        for each in several:
            each.run("delete from $t where ctid = (select min(ctid) from $t)")
        first.become_equal(*tables)
        for each, kind in zip(several, CHANGES, strict=True):
            assert keys(first.made.look, each.t) == keys(stage.source, each.t), kind


@pytest.mark.parametrize("found", [pytest.param(False, marks=pytest.mark.long), True], ids=["made", "found"])
def test_a_table_is_called_as_at_the_source(stage: Stage, cluster: Cluster, found: bool):
    with registered_tables(stage, cluster, len(NAMES), found=found) as several:
        ddl, names = zip(
            *(map(each.named, kind) for each, kind in zip(several, NAMES.values(), strict=True)), strict=True
        )
        with altered(*zip(several, ddl, strict=True)):
            first = several[0]
            for name in names:
                first.run(f"update {name} set b = b || '!'")
            first.become_equal(*names)
            for each, name in zip(several, names, strict=True):
                assert keys(first.made.look, name) == keys(stage.source, name)
                assert first.made.look.execute("select to_regclass(%s)", [each.t]).fetchall() == [(None,)]
            assert {table.table_name for table in first.made.found.table_states} == set(names)


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"schema": "exists"}, marks=pytest.mark.long)], ids=["made", "found"]
)
def test_a_name_that_was_given_before_anything_is_made(stage: Stage, cluster: Cluster, options: dict[str, str]):
    with registered(stage, cluster, found="schema" in options, **options) as changed:
        changed.run("alter table $t rename to $t_x", "alter table $t_x rename a to c")
        with changed.made.running():
            changed.become_equal(changed.named("$t_x"))
            changed.run("update $t_x set b = b || '!'")
            changed.become_equal(changed.named("$t_x"))


def test_names_that_are_exchanged(stage: Stage, cluster: Cluster):
    with registered(stage, cluster) as changed:
        other = changed.named("$t_other")
        changed.run(f"create table {other} (id int primary key, z text)", f"insert into {other} values (1, 'z')")
        changed.stage.arrive()
        registry.add_tables(stage.log, changed.made.found.id, [NamedTable(oid(stage, other), "public", other)])
        swap = "alter table $t rename to $t_x; alter table $t_other rename to $t; alter table $t_x rename to $t_other"
        with altered((changed, swap), also=f"insert into {other} values (3, 'z3')"):
            changed.become_equal(changed.t, other)
            changed.run("update $t set z = 'y'", "update $t_other set a = 'b'")
            changed.become_equal(changed.t, other)


@pytest.mark.parametrize(
    ("when", "again", "ddl"),
    [
        pytest.param(
            when,
            again,
            ddl,
            id=f"{when}-{'made again' if again else 'dropped'}-{'altered' if ddl else 'as it was'}",
            # Each two of them meet once; the long tests have all three together.
            marks=[] if (when == "once it is made") == (again == bool(ddl)) else [pytest.mark.long],
        )
        for when in ("before it is made", "once it is made")
        for again in (False, True)
        for ddl in ("", "alter table $t add c int; update $t set c = 1; ")
    ],
)
def test_a_table_that_is_dropped(stage: Stage, cluster: Cluster, again: bool, when: str, ddl: str):
    """`ddl`: is run before that, so the newest form in the log is one that the follower never gets."""
    with registered(stage, cluster) as changed:
        beside = changed.named("$t_beside")
        changed.run(f"create table {beside} (id int primary key)", f"insert into {beside} values (1)")
        changed.stage.arrive()
        ddl += "drop table $t" + ("; create table $t (id bigint primary key, d text)" if again else "")
        if when == "before it is made":
            changed.run(ddl)
        with altered((changed, ddl)) if when != "before it is made" else changed.made.running():
            changed.become_equal_in_time(beside)
            if again:
                publish_new_tables(changed.stage.config)
                changed.run("insert into $t values (7, 'again')")
                changed.become_equal_in_time(changed.t, beside)
            else:
                eventually(lambda: changed.made.found.state == "following")


def test_with_ddl_stop_it_says_what_to_run(stage: Stage, cluster: Cluster):
    with (
        registered(stage, cluster, found=True, ddl="stop") as changed,
        altered((changed, "alter table $t add c int; update $t set c = 1")),
    ):
        reason, remedy = changed.stopped()
        assert reason == changed.named(
            "cannot be copied: the source added column c (integer) to public.$t, and --ddl is stop"
        )
        assert remedy.startswith(changed.named('`alter table "public"."$t" add column "c" integer` there'))
        changed.there("alter table $t add c int")
        changed.become_equal_in_time()


def test_one_that_begins_from_the_log_has_the_form_of_when_it_was_added(stage: Stage, cluster: Cluster):
    changes = ("add c int", "rename a to c", "alter n type varchar(9)")
    with registered_tables(stage, cluster, len(changes), found=True, copy="log") as several:
        for changed, ddl in zip(several, changes, strict=True):
            changed.there("insert into $t values (1, 'a1', 'b1', 'n1'), (2, 'a2', 'b2', 'n2')")
            changed.run(f"alter table $t {ddl}", "update $t set b = b || '!'")
        stage.arrive()
        with several[0].made.running():
            become_equal(several)


@pytest.mark.parametrize("copy", ["log", "none"])
def test_a_table_that_is_altered_before_its_first_event(stage: Stage, cluster: Cluster, copy: str):
    """The log never had the form in which the follower has it."""
    table = unique("t")
    create = f"create table {table} (id int primary key)"
    stage.run(create)
    publish_new_tables(stage.config)
    with copying(stage, cluster, create, tables=[table], copy=copy) as made:
        stage.run(f"alter table {table} add short text; alter table {table} rename short to long")
        stage.run(f"insert into {table} values (1, 'x')")
        stage.arrive()
        changed = Changed(stage, made, table)
        with made.running():
            changed.become_equal_in_time()
            changed.run("update $t set long = 'y'")
            changed.become_equal()
