"""DDL at the source reaches a follower's tables at its place in the log, or stops it there with what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest

from pipeline.errors import FollowedTablesChangedError
from pipeline.followers import registry
from pipeline.followers.registry import NamedTable
from pipeline.followers.running import beginning, following, joined_partitions
from pipeline.followers.schema_changes.renames import TableRenames
from pipeline.postgres.connections import Connection
from pipeline.server.schedule import publish_new_tables
from pipeline.snapshots.register import InheritanceWatcher
from tests.fixtures.copying import copying
from tests.fixtures.following import oid
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.schema_changes import Changed, become_equal, followed_tables
from tests.fixtures.shuffling import stored
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
    monkeypatch.setattr(joined_partitions, "LOOK_SECONDS", 0.1)


@pytest.fixture
def several(stage: Stage, cluster: Cluster) -> Iterator[list[Changed]]:
    """Tables of one follower, for each change of columns and keys one."""
    with followed_tables(stage, cluster, len(cases.COLUMNS_AND_KEYS)) as made:
        yield made


def test_columns_and_keys_are_followed(several: list[Changed]):
    assert not any(change.copied for change in cases.COLUMNS_AND_KEYS.values())
    with several[0].made.running():
        for changed, change in zip(several, cases.COLUMNS_AND_KEYS.values(), strict=True):
            changed.run(*change.statements)
        become_equal(several)
        assert not several[0].is_copied


def test_they_are_followed_from_far_behind(stage: Stage, several: list[Changed]):
    for changed, change in zip(several, cases.COLUMNS_AND_KEYS.values(), strict=True):
        changed.run(*change.statements)
    stage.arrive()
    for changed, kind in zip(several, cases.COLUMNS_AND_KEYS, strict=True):
        changed.run("update $t set a = 'later'" if kind != "renamed" else "update $t set c = 'later'")
    stage.arrive()
    with several[0].made.running():
        become_equal(several)
        assert not several[0].is_copied


def test_tables_names_and_types(stage: Stage, cluster: Cluster):
    with followed_tables(stage, cluster, len(cases.TABLES)) as several:
        for changed, change in zip(several, cases.TABLES.values(), strict=True):
            changed.there(*change.there)
        made = several[0].made
        with made.running():
            for changed, change in zip(several, cases.TABLES.values(), strict=True):
                changed.run(*change.statements)
            names = {
                kind: list(map(changed.named, change.tables))
                for changed, (kind, change) in zip(several, cases.TABLES.items(), strict=True)
            }
            several[0].become_equal_in_time(*(name for each in names.values() for name in each))
            copied = made.copies()
            for kind, change in cases.TABLES.items():
                assert any(oid(stage, name) in copied for name in names[kind]) == change.copied, kind


def test_a_table_that_is_dropped_stays(changed: Changed):
    with changed.made.running():
        changed.run("insert into $t values (2)", *cases.DROPPED.statements)
        head = changed.stage.arrive()
        eventually(lambda: changed.made.found.seq >= head)
        assert changed.ids(changed.made.look) == [(1,), (2,)]
        assert changed.made.found.state == "following"


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


def test_a_table_is_not_copied_if_it_is_renamed_between_two_reads(changed: Changed):
    made, reads = changed.made, list[Mapping[int, NamedTable]]()
    changed.run("alter table $t rename to $t_over", "update $t_over set a = 'x'")

    def read_names(session: Connection) -> Mapping[int, NamedTable]:
        """Read the names. After the first time, let the follower rename the table."""
        reads.append(beginning.table_names(session, made.found))
        if len(reads) == 1:
            with made.running():
                changed.become_equal(f"{changed.t}_over")
        return reads[-1]

    with beginning.plain_session(made.found) as session, pytest.raises(FollowedTablesChangedError, match="other names"):
        TableRenames(changed.stage.config, lambda: made.found, read_names).follow_missing_tables(
            changed.stage.log, session
        )
    assert not changed.is_copied


@pytest.mark.parametrize("exchanged", [True, False])
def test_names_of_tables_that_are_exchanged(stage: Stage, cluster: Cluster, exchanged: bool):
    first = unique("t")
    second = f"{first}_other"
    tables = [f"create table {name} (id int primary key, a text)" for name in (first, second)]
    *renames, last, change = (text.replace("$t", first) for text in cases.EXCHANGED.statements)
    stage.run(*tables)
    publish_new_tables(stage.config)
    stage.run(f"insert into {first} values (1, 'first')", f"insert into {second} values (1, 'second')")
    stage.arrive()
    rows = [f"insert into {first} values (1, 'first')", f"insert into {second} values (1, 'second')"]
    given = {"copy": "none", "schema": "exists"}
    with copying(stage, cluster, *tables, *rows, tables=[first, second], **given) as made, made.running():
        stage.run(*renames, *([last] if exchanged else []), change)
        made.tables = [first] if not exchanged else [first, second]
        made.become_equal()
        other = second if exchanged else f"{first}_over"
        stage.run(f"update {other} set a = a || ' changed'")
        made.tables = [first, other]
        made.become_equal()


@pytest.mark.parametrize(
    ("changed", "kind"), [(stop.options, kind) for kind, stop in cases.STOPS.items()], indirect=["changed"]
)
def test_it_stops_with_what_to_do(changed: Changed, kind: str):
    stop = cases.STOPS[kind]
    changed.there(*stop.there)
    with changed.made.running():
        changed.run(*stop.statements[:-1])
        before = changed.ids(changed.stage.source, stop.called)
        changed.run(stop.statements[-1])
        assert changed.stopped() == (changed.named(stop.reason), changed.named(stop.remedy))
        assert changed.ids(changed.made.look) == before
        if stop.repaired:
            changed.there(*stop.repaired)
            changed.become_equal_in_time(changed.named(stop.called))


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


def test_an_enum_that_is_replaced(changed: Changed):
    """As Prisma removes and renames values. The follower has labels of both types, and renames only in the new one."""
    kind = unique("mood")
    create = f"create type {kind} as enum ('sad', 'ok')"
    changed.there(create)
    with changed.made.running():
        changed.run(create, f"alter table $t add m {kind}, add ms {kind}[]", "update $t set m = 'ok', ms = '{sad,ok}'")
        changed.become_equal()
        changed.run(
            f"create type {kind}_new as enum ('sad', 'fine')",
            f"insert into $t (id, m, ms) values (2, 'sad', '{{ok}}');"
            f"alter table $t alter m type {kind}_new using replace(m::text, 'ok', 'fine')::{kind}_new,"
            f" alter ms type {kind}_new[] using replace(ms::text, 'ok', 'fine')::{kind}_new[];"
            f"alter type {kind} rename to {kind}_old; alter type {kind}_new rename to {kind}; drop type {kind}_old;"
            f"insert into $t (id, m, ms) values (3, 'fine', '{{fine,sad}}')",
        )
        changed.become_equal_in_time()
        labels = f"select enum_range(null::{kind})::text".encode()
        assert changed.made.look.execute(labels).fetchone() == ("{sad,fine,ok}",)
        changed.run(
            f"alter type {kind} rename value 'fine' to 'great'",
            f"alter type {kind} add value 'bad'",
            "insert into $t (id, m, ms) values (4, 'great', '{bad}')",
        )
        changed.become_equal_in_time()
        assert changed.made.look.execute(labels).fetchone() == ("{sad,great,bad,ok}",)


@pytest.mark.parametrize("changed", [{"copy": "source", "truncate": True}], indirect=True)
def test_labels_that_copies_need(changed: Changed):
    kind, new = unique("mood"), unique("new")
    create = f"create type {kind} as enum ('sad')"
    changed.there(create, f"alter table $t add m {kind}")
    changed.run(create, f"alter type {kind} add value 'ok'", f"alter table $t add m {kind}", "update $t set m = 'ok'")
    with changed.made.running():
        changed.become_equal_in_time()
        changed.run(
            f"alter type {kind} add value 'good'",
            f"create table {new} (id int primary key, m {kind})",
            f"insert into {new} values (1, 'good')",
        )
        changed.become_equal_in_time(changed.t, new)


def test_events_with_labels_that_were_renamed_since(changed: Changed):
    kind = unique("mood")
    create = f"create type {kind} as enum ('sad', 'ok')"
    for run in (changed.run, changed.there):
        run(create, f"alter table $t add m {kind}, add ms {kind}[]")
    with changed.made.running():
        changed.run("update $t set m = 'ok'")
        changed.become_equal()
    changed.run(
        f"alter type {kind} add value 'new'",
        "update $t set m = 'new'; insert into $t (id, ms) values (2, '{new}')",
        f"alter type {kind} rename value 'new' to 'newer'",
        "insert into $t (id, m) values (3, 'newer')",
    )
    with changed.made.running():
        changed.become_equal_in_time()


@pytest.mark.parametrize("changed", [{"copy": "source", "truncate": True}], indirect=True)
def test_labels_that_are_renamed_before_the_first_copy(changed: Changed):
    kind = unique("mood")
    create = f"create type {kind} as enum ('sad', 'ok')"
    changed.there(create, f"alter table $t add m {kind}")
    changed.run(create, f"alter table $t add m {kind}", "update $t set m = 'ok'")
    with psycopg.connect(changed.stage.config.source) as holder:
        holder.execute(changed.named("insert into $t (id) values (2)").encode())
        with changed.made.running():
            eventually(lambda: f"pid {holder.info.backend_pid} " in str(changed.made.table(changed.t).reason))
            changed.run(
                f"alter type {kind} rename value 'ok' to 'fine'; alter type {kind} add value 'bad' before 'sad'"
            )
            holder.commit()
            changed.become_equal_in_time()


def test_a_domain_whose_check_changes(changed: Changed):
    domain = unique("d")
    create = (
        f"create domain {domain} as text constraint short check (length(value) < 5)"
        " constraint lower check (lower(value) = value)"
    )
    changed.there(create)
    with changed.made.running():
        changed.run(create, f"alter table $t add d {domain}", "update $t set d = 'ok'")
        changed.become_equal()
        changed.there(f"alter domain {domain} set not null")
        changed.run(
            f"alter domain {domain} drop constraint short",
            "insert into $t (id, d) values (2, 'longer than five'), (3, null)",
        )
        changed.become_equal()
        query = "select conname from pg_constraint where contypid = %s::regtype"
        assert changed.made.look.execute(query, [domain]).fetchall() == [("lower",)]


def test_a_composite_type_that_gains_and_loses_attributes(changed: Changed):
    kind = unique("pair")
    create = f"create type {kind} as (x int, y text)"
    changed.there(create)
    with changed.made.running():
        changed.run(create, f"alter table $t add p {kind}, add ps {kind}[]", "update $t set p = (1, 'a')")
        changed.become_equal()
        changed.run(
            f"alter type {kind} add attribute z numeric(5, 2)",
            "insert into $t (id, p) values (2, (2, 'b', 3)); update $t set ps = array[p]",
        )
        changed.become_equal()
        changed.run(f"alter type {kind} drop attribute y", "insert into $t (id, p) values (3, (3, 4.5))")
        changed.become_equal()
        changed.run(
            f"alter type {kind} rename attribute x to x2; alter type {kind} rename attribute z to x;"
            f" alter type {kind} rename attribute x2 to z",
            "insert into $t (id, p) values (4, (4, 5.5))",
        )
        changed.become_equal()
        assert changed.attributes(kind) == ["z", "x"]
        assert not changed.is_copied


def test_a_composite_type_that_loses_one_attribute_and_gains_another(changed: Changed):
    """The number of attributes stays: nothing else tells the follower which ones a value has."""
    kind, outer = unique("pair"), unique("outer")
    create = (f"create type {kind} as (x text, y text)", f"create type {outer} as (p {kind}, ps {kind}[])")
    changed.there(*create)
    with changed.made.running():
        changed.run(
            *create, f"alter table $t add o {outer}", f"update $t set o = ((1, 'a'), array[(2, 'b')]::{kind}[])"
        )
        changed.become_equal()
        changed.run(
            f"alter type {kind} drop attribute x, add attribute z text",
            f"insert into $t (id, o) values (2, (('b', 'c'), array[('d', 'e')]::{kind}[]))",
        )
        changed.become_equal_in_time()
        assert changed.attributes(kind) == ["y", "z"]
        assert changed.is_copied


def test_attributes_that_copies_need(changed: Changed):
    """A copy waits for events of before, and another table with the type is not copied for it."""
    kind, new = unique("pair"), unique("new")
    create = f"create type {kind} as (x int, y text)"
    changed.there(create)
    with changed.made.running():
        changed.run(create, f"alter table $t add p {kind}", "update $t set p = (1, 'a')")
        changed.become_equal()
        copied = changed.made.copies()
        changed.run(
            f"alter type {kind} add attribute z int",
            f"create table {new} (id int primary key, ps {kind}[])",
            f"insert into {new} values (1, array[(1, 'a', 2)]::{kind}[])",
        )
        changed.become_equal_in_time(changed.t, new)
        assert changed.attributes(kind) == ["x", "y", "z"]
        assert copied == {}
        assert len(changed.made.copies()) == 1


@pytest.mark.parametrize("changed", [{"ddl": "stop"}], indirect=True)
def test_a_composite_type_that_the_follower_is_not_to_alter(changed: Changed):
    kind = unique("pair")
    create = f"create type {kind} as (x int, y text)"
    changed.there(create, f"alter table $t add p {kind}")
    with changed.made.running():
        changed.run(create, f"alter table $t add p {kind}", "update $t set p = (1, 'a')")
        changed.become_equal()
        add = f'alter type "public"."{kind}" add attribute "z" integer'
        changed.run(f"alter type {kind} add attribute z int", "insert into $t (id, p) values (2, (2, 'b', 3))")
        reason, remedy = changed.stopped()
        assert reason == changed.named(
            f"the follower stops: type public.{kind} (column p of public.$t) has other attributes at the source"
            " (x, y, z), and --ddl is stop"
        )
        assert remedy == f"`{add}` there; it is tried again by itself"
        changed.there(add)
        changed.become_equal_in_time()
        assert not changed.is_copied


def test_a_key_that_is_given_up_takes_nulls(changed: Changed):
    """As one moves from int to bigint."""
    with changed.made.running():
        changed.run(
            "alter table $t add new_id bigint",
            "update $t set new_id = id",
            "alter table $t alter new_id set not null, drop constraint $t_pkey, add primary key (new_id)",
            "update $t set a = 'by the new key'",
            "alter table $t rename id to old_id; alter table $t rename new_id to id",
            "alter table $t alter old_id drop not null",
            "insert into $t (id, a) values (5000000000, 'new')",
        )
        changed.become_equal()


def test_schemas_that_exchange_names(stage: Stage, cluster: Cluster):
    blue, green = unique("s"), unique("s")
    make = [f"create schema {s}; create table {s}.t (id serial primary key, a text unique)" for s in (blue, green)]
    stage.run(*make)
    publish_new_tables(stage.config)
    rows = [f"insert into {s}.t values (1, '{s}')" for s in (blue, green)]
    stage.run(*rows)
    stage.arrive()
    with copying(stage, cluster, *make, *rows, tables=[], copy="none") as made:
        query = "select oid::bigint as oid from pg_class where oid = %s::regclass"
        oids = [stage.source.execute(query, [f"{s}.t"]).fetchall()[0][0] for s in (blue, green)]
        names = [NamedTable(oid, s, "t") for oid, s in zip(oids, (blue, green), strict=True)]
        registry.add_tables(stage.log, made.found.id, names)
        with made.running():
            stage.run(
                f"alter schema {blue} rename to {blue}_x; alter schema {green} rename to {blue};"
                f" alter schema {blue}_x rename to {green}",
                f"insert into {blue}.t values (2, 'was green'); insert into {green}.t values (2, 'was blue')",
            )
            made.tables = [f"{blue}.t", f"{green}.t"]
            made.become_equal()


@pytest.mark.parametrize("options", [{"copy": "source", "truncate": True}, {"copy": "none"}], ids=["copied", "there"])
def test_a_name_that_the_position_is_past_is_given_at_the_next_event(
    stage: Stage, cluster: Cluster, options: dict[str, Any]
):
    """The look at the catalog has found it, so no event of the table comes at its place in the log."""
    schema = unique("s")
    make = [f"create schema {schema}", f"create table {schema}.t (id int primary key, a text)"]
    stage.run(*make)
    publish_new_tables(stage.config)
    row = f"insert into {schema}.t values (1, 'a')"
    stage.run(row)
    stage.arrive()
    with copying(stage, cluster, *make, row, tables=[], patterns=(f"{schema}*.t",), **options) as made:
        query = "select oid::bigint as oid from pg_class where oid = %s::regclass"
        [(number,)] = stage.source.execute(query, [f"{schema}.t"]).fetchall()
        registry.add_tables(stage.log, made.found.id, [NamedTable(number, schema, "t")])
        with made.running():
            eventually(lambda: made.is_followed("t"))
        stage.run(f"alter schema {schema} rename to {schema}_b")
        with made.running():
            known = "select 1 as found from pipeline.relations where relation_schema = %s"
            eventually(lambda: stage.look(known, f"{schema}_b"))
            head = stage.arrive()
            eventually(lambda: made.found.seq >= head)
        with made.running():
            stage.run(f"update {schema}_b.t set a = 'b'")
            made.tables = [f"{schema}_b.t"]
            made.become_equal()


def test_two_appliers_alter_once(changed: Changed):
    with changed.made.running(), changed.made.running():
        for number in range(5):
            changed.run(f"alter table $t add c{number} int", f"update $t set c{number} = 1")
        changed.become_equal()


def look_at_inheritance(stage: Stage) -> None:
    """As the server does every two seconds."""
    looked = InheritanceWatcher(stage.source, stage.log, stored(stage.log))
    found = looked.read()
    [[lsn]] = stage.source.execute("select (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchall()
    looked.compare(found, lsn)
    stage.arrive()


def does_inherit(changed: Changed, parent: Changed) -> bool:
    query = "select from pg_inherits where inhrelid = %s::regclass and inhparent = %s::regclass"
    return bool(changed.made.look.execute(query, [changed.t, parent.t]).fetchall())


def test_a_table_inherits_and_no_longer_does(stage: Stage, cluster: Cluster):
    with followed_tables(stage, cluster, 2) as [parent, child], parent.made.running():
        look_at_inheritance(stage)
        child.run(f"alter table $t inherit {parent.t}", "insert into $t values (2, 'a2', 'b2', 'n2')")
        look_at_inheritance(stage)
        eventually(lambda: does_inherit(child, parent))
        become_equal([parent, child])
        # Its own event comes first: what it has inherited cannot be altered alone.
        parent.run("alter table $t rename a to c")
        child.run("update $t set c = 'c2'")
        child.become_equal()
        says = f"inherits from public.{parent.t} at the source, and the follower refuses that: child table is missing"
        eventually(lambda: says in (child.made.table(child.t).reason or ""))
        parent.run("update only $t set c = 'c1'")
        stage.arrive()
        eventually(lambda: does_inherit(child, parent) and child.made.table(child.t).reason is None)
        become_equal([parent, child])
        child.run(f"alter table $t no inherit {parent.t}")
        look_at_inheritance(stage)
        eventually(lambda: not does_inherit(child, parent))
        become_equal([parent, child])


def test_with_ddl_stop_it_says_that_a_table_inherits(stage: Stage, cluster: Cluster):
    with followed_tables(stage, cluster, 2, ddl="stop") as [parent, child], parent.made.running():
        look_at_inheritance(stage)
        child.run(f"alter table $t inherit {parent.t}")
        look_at_inheritance(stage)

        def is_said() -> None:
            found = child.made.table(child.t)
            assert found.reason == f"inherits from public.{parent.t} at the source, and --ddl is stop"
            assert found.remedy == f'`alter table "public"."{child.t}" inherit "public"."{parent.t}"` there'

        eventually(is_said)
        child.there(f"alter table $t inherit {parent.t}")
        eventually(lambda: child.made.table(child.t).reason is None)
    child.run(f"alter table $t no inherit {parent.t}")
