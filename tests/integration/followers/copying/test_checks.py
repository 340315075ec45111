"""Rows that the source has are copied, whatever its checks are by now: a check that one violates stays NOT VALID."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import psycopg
import pytest

from pipeline.followers.copying import refused_rows
from pipeline.followers.running import copier, following
from pipeline.followers.schema_changes import source_tables
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.copying import Copying, copying
from tests.fixtures.following import oid
from tests.fixtures.postgres import Cluster
from tests.fixtures.stage import Stage, databases
from tests.fixtures.waiting import eventually

SOON = "clock_timestamp() + interval '0.3 s'"
OFFERS = (
    "create table offers (id int primary key, until timestamptz constraint open check (until > now()), price int)",
    f"insert into offers values (1, {SOON}, 99), (2, 'infinity', 5)",
    "alter table offers add constraint fair check (price < 90) not valid, add constraint real check (price > 0)",
)
CONSTRAINTS = """
    select c.conrelid::regclass::text || ' ' || c.conname, pg_get_constraintdef(c.oid) from pg_constraint c
    where c.contype in ('c', 'n') and c.conrelid = any(%s::regclass[]) and (c.contype = 'c' or not c.convalidated)
"""


LONG = [pytest.param(major, marks=pytest.mark.long) for major in (16, 15)]
EACH_MAJOR = pytest.mark.parametrize("there", [18, 16, LONG[1]], indirect=True, ids=lambda major: f"pg{major}")
"""For tests of what Postgres 18 has in other catalogs, or inherits otherwise: a not null is a constraint there."""


@pytest.fixture(scope="module", params=[18, *LONG], ids=lambda major: f"pg{major}")
def there(request: pytest.FixtureRequest, clusters: Callable[[int], Cluster]) -> Cluster:
    """The server of the source, and of the follower."""
    return clusters(request.param)


@pytest.fixture(scope="module")
def stage(cluster: Cluster, there: Cluster) -> Iterator[Stage]:
    with databases(there, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.run("create table others (id int primary key)")
        stage.start()
        yield stage


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's process looks often: a test waits for it."""
    monkeypatch.setattr(following, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(following, "REPORT_SECONDS", 0.05)
    monkeypatch.setattr(following, "FIRST_DELAY", 0.1)
    monkeypatch.setattr(copier, "FIRST_DELAY", 0.1)


@pytest.fixture
def source(stage: Stage) -> Iterator[Stage]:
    """Without the tables that a test makes."""
    yield stage
    made = "select oid::regclass from pg_class where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace"
    query = f"{made} and relname not in ('others', 'spatial_ref_sys') and not relispartition"
    for (table,) in stage.source.execute(query.encode()).fetchall():
        stage.run(f"drop table if exists {table} cascade")


def write(stage: Stage, *statements: str, expiring: str | None = None) -> None:
    """Run them at the source, and wait until the time in `until` of a row of this table has passed."""
    stage.run(*statements)
    publish_new_tables(stage.config)
    if expiring is not None:
        query = f"select from {expiring} where until < clock_timestamp()"
        eventually(lambda: stage.source.execute(query.encode()).rowcount > 0)
    stage.arrive()


def constraints(connection: psycopg.Connection, *tables: str) -> dict[str, str]:
    """The checks of tables, and what is not null and not valid."""
    return dict(connection.execute(CONSTRAINTS, [list(tables)]).fetchall())


def expected(stage: Stage, *tables: str, violated: tuple[str, ...]) -> dict[str, str]:
    """Those of the source, of which these are not valid."""
    found = constraints(stage.source, *tables)
    return {name: f"{text} NOT VALID" if name in violated else text for name, text in found.items()}


def is_equal(made: Copying, *tables: str) -> None:
    """Once these tables follow the log."""
    following = {each.table_name for each in made.found.table_states if each.state == "following"}
    assert following >= set(tables), made.found.table_states
    assert made.are_equal(*tables)


def is_made(made: Copying, *tables: str, violated: tuple[str, ...]) -> None:
    assert constraints(made.look, *tables) == expected(made.stage, *tables, violated=violated)


def note(made: Copying, table: str) -> str:
    """What is said of a table that follows the log."""
    found = made.table(table)
    assert (found.state, bool(found.reason)) == ("following", True), found
    return f"{found.reason}; {found.remedy}"


def stops(made: Copying, name: str | None = None) -> tuple[str, str]:
    """Why one of its tables has, or the follower, once it has; and the remedy."""
    found = made.table(name) if name else made.found
    assert found.state == "stopped", found
    return found.reason or "", found.remedy or ""


@EACH_MAJOR
def test_checks_that_rows_violate_stay_not_valid_and_are_named(source: Stage, there: Cluster):
    write(source, *OFFERS, expiring="offers")
    with copying(source, there, tables=["offers"]) as made, made.running():
        made.become_equal()
        eventually(lambda: made.is_followed("offers"))
        is_made(made, "offers", violated=("offers open",))
        said = eventually(partial(note, made, "offers"))
        assert said == (
            'check open of public.offers is not valid there as it is at the source: check constraint "open" of relation'
            ' "offers" is violated by some row (SQLSTATE 23514); correct those rows at the source, then run there:'
            " `alter table public.offers validate constraint open`"
        )
        with pytest.raises(psycopg.errors.CheckViolation):
            made.look.execute("insert into offers values (3, 'infinity', 90)")
        source.run("delete from offers where id = 1")
        made.become_equal()
        made.look.execute("alter table public.offers validate constraint open")
        eventually(lambda: made.table("offers").reason is None)


def test_checks_of_partitions_are_valid_where_no_row_violates_them(source: Stage, there: Cluster):
    tables = ("halves", "halves_low", "halves_high", "halves_high_a")
    write(
        source,
        "create table halves (id int primary key, until timestamptz constraint open check (until > now()))"
        " partition by range (id)",
        "create table halves_low partition of halves (constraint low check (id < 100)) for values from (0) to (100)",
        "create table halves_high partition of halves for values from (100) to (200) partition by range (id)",
        "create table halves_high_a partition of halves_high for values from (100) to (200)",
        f"insert into halves values (1, {SOON}), (101, 'infinity')",
        "alter table halves_low add constraint odd check (id <> 1) not valid",
        expiring="halves",
    )
    with copying(source, there, tables=["halves"]) as made, made.running():
        made.become_equal()
        eventually(lambda: made.is_followed("halves"))
        is_made(made, *tables, violated=("halves open", "halves_low open"))
        assert 'of relation "halves_low" is violated' in eventually(partial(note, made, "halves"))


@EACH_MAJOR
def test_checks_that_children_inherit_are_taken_off_at_the_parent(source: Stage, there: Cluster):
    tables = ("parents", "worse", "better")
    write(
        source,
        "create table parents (id int primary key, until timestamptz constraint open check (until > now()),"
        " constraint own check (id < 100) no inherit)",
        "create table worse (primary key (id), constraint small check (id < 1000)) inherits (parents)",
        "create table better (primary key (id), constraint open check (until > now())) inherits (parents)",
        f"insert into worse values (1, {SOON})",
        "insert into better values (2, 'infinity')",
        "insert into parents values (3, 'infinity')",
        expiring="worse",
    )
    with copying(source, there, tables=tables) as made, made.running():
        eventually(lambda: made.is_followed(*tables))
        assert made.are_equal(*tables)
        is_made(made, *tables, violated=("parents open", "worse open"))
        assert 'of relation "worse" is violated' in eventually(partial(note, made, "parents"))


def test_what_is_not_enforced_or_not_null_later_is_as_at_the_source(source: Stage, there: Cluster):
    if source.source.info.server_version < 180_000:
        pytest.skip("Postgres has neither")
    write(
        source,
        "create table loose (id int primary key, a int, n int, constraint never check (n > 5) not enforced)",
        "insert into loose values (1, null, 1)",
        "alter table loose add constraint given not null a not valid, alter n set not null",
    )
    with copying(source, there, tables=["loose"]) as made, made.running():
        made.become_equal()
        eventually(lambda: made.is_followed("loose"))
        is_made(made, "loose", violated=())
        assert made.table("loose").reason is None
        source.run("alter table loose add more int default 7", "update loose set more = 8, a = 1 where false")
        source.run("insert into loose (id, a, n) values (2, 1, 1)")
        made.become_equal()
        is_made(made, "loose", violated=())


def test_a_null_of_before_a_not_null_that_is_not_valid_is_taken(source: Stage, there: Cluster):
    if source.source.info.server_version < 180_000:
        pytest.skip("Postgres has it not")
    create = "create table sparse (id int primary key, a int{})"
    write(source, create.format(""))
    with copying(source, there, create.format(" not null"), tables=["sparse"], copy="none") as made:
        source.run(
            "insert into sparse values (1, null)", "alter table sparse add constraint given not null a not valid"
        )
        assert source_tables.takes_null(source.config, oid(source, "sparse"), "a", None)
        with made.running():
            made.become_equal()
        source.run("delete from sparse", "alter table sparse validate constraint given")
        assert not source_tables.takes_null(source.config, oid(source, "sparse"), "a", None)


def test_a_table_that_comes_later_and_one_that_is_copied_again(source: Stage, there: Cluster):
    patterns = ("public.others", "public.offers")
    with copying(source, there, tables=["others"], patterns=patterns) as made, made.running():
        eventually(lambda: made.is_followed("others"))
        write(source, *OFFERS, expiring="offers")
        source.run("insert into offers values (4, 'infinity', 8)")
        source.arrive()
        eventually(partial(is_equal, made, "others", "offers"))
        eventually(partial(is_made, made, "offers", violated=("offers open",)))
        # Each value becomes another one, which no event says.
        source.run(
            "delete from offers where id = 2; alter table offers alter price type numeric using price * 1.5;"
            " insert into offers values (3, 'infinity', 7)"
        )
        source.arrive()
        eventually(partial(is_equal, made, "offers"))
        eventually(partial(is_made, made, "offers", violated=("offers open",)))
        eventually(partial(note, made, "offers"))


def test_a_table_that_is_renamed_before_its_copy_gets_its_checks(source: Stage, there: Cluster):
    write(source, *OFFERS, expiring="offers")
    with copying(source, there, tables=["offers"]) as made, psycopg.connect(source.config.source) as holder:
        holder.execute("insert into offers values (3, 'infinity', 7)")
        with made.running():
            eventually(lambda: f"pid {holder.info.backend_pid} " in (made.table("offers").reason or ""))
            holder.execute("alter table offers rename price to cost")
            holder.execute("alter table offers rename to bids")
            holder.commit()
            source.arrive()
            eventually(partial(is_equal, made, "bids"))
            eventually(partial(is_made, made, "bids", violated=("bids open",)))
    source.run("drop table bids")


def test_a_check_whose_function_finds_nothing_holds_up_its_table_alone(source: Stage, there: Cluster):
    functions = (
        "create schema sought_in",
        "create function sought_in.found(text) returns boolean language sql as 'select length($1) > 0'",
        "create function sought_in.seeks(v text) returns boolean language plpgsql as 'begin return found(v); end'",
    )
    write(
        source,
        *functions,
        "create table seeking (id int primary key, name text constraint a check (sought_in.seeks(name)))",
        "set local search_path = public, sought_in; insert into seeking values (1, 'a')",
    )
    altered = "alter function sought_in.seeks(text) set search_path = sought_in, pg_catalog"
    with copying(source, there, *functions, tables=["seeking", "others"]) as made, made.running():
        reason, remedy = eventually(partial(stops, made, "seeking"))
        assert "refuses to create check a of public.seeking: function found(text) does not exist" in reason
        assert f"`{altered}`" in remedy
        eventually(lambda: made.is_followed("others"))
        made.look.execute(altered.encode())
        eventually(partial(is_equal, made, "seeking"))
        is_made(made, "seeking", violated=())
    source.run("drop table seeking", "drop schema sought_in cascade")


@pytest.mark.parametrize(
    ("constraint", "altered"),
    [
        ("alter table strict add constraint low check (n < 5)", "alter table public.strict drop constraint low"),
        ("alter table strict alter n set not null", "alter table public.strict alter column n drop not null"),
        ("alter table strict add unique (n)", "alter table public.strict drop constraint strict_n_key"),
        ("create unique index odd on strict (abs(n)) where id > 0", "drop index public.odd"),
    ],
    ids=["check", "not null", "unique", "index"],
)
def test_a_copy_into_a_table_that_was_there_is_named_with_the_remedy(
    source: Stage, there: Cluster, constraint: str, altered: str
):
    create = "create table strict (id int primary key, n int)"
    write(source, create, "insert into strict values (1, 9), (2, null), (3, 9)")
    with copying(source, there, create, constraint, tables=["strict", "others"]) as made, made.running():
        reason, remedy = eventually(partial(stops, made, "strict"))
        assert "violates" in reason
        assert remedy == f"let it take that row: run there `{altered}`; it is tried again by itself"
        eventually(lambda: made.is_followed("others"))
        made.look.execute(altered.encode())
        eventually(partial(is_equal, made, "strict"))


def test_a_unique_index_that_the_source_has_as_well_is_not_named(source: Stage, there: Cluster):
    create = "create table strict (id int primary key, n int unique)"
    write(source, create, "insert into strict values (1, 9)")
    with copying(source, there, create, tables=["strict"], copy="none") as made:
        made.look.execute("insert into strict values (1, 9)")
        with pytest.raises(psycopg.errors.UniqueViolation) as raised:
            made.look.execute("insert into strict values (2, 9)")
        refused = refused_rows.from_error(raised.value)
        assert refused is not None
        assert refused.remedy(made.look, source.source) is None
        source.run("alter table strict drop constraint strict_n_key")
        assert "alter table public.strict drop constraint strict_n_key" in (
            refused.remedy(made.look, source.source) or ""
        )


def test_an_event_that_violates_a_check_is_named_with_the_remedy(source: Stage, there: Cluster):
    create = (
        "create table strict (id int primary key, n int) partition by range (id)",
        "create table strict_low partition of strict for values from (0) to (9)",
    )
    check, altered = "add constraint low check (n < 5)", "alter table public.strict drop constraint low"
    write(source, *create)
    here = (*create, f"alter table strict {check}")
    with copying(source, there, *here, tables=["strict"], copy="none") as made, made.running():
        source.run("insert into strict values (1, 4), (2, 5), (3, 5)")
        source.arrive()
        reason, remedy = eventually(partial(stops, made))
        assert "violates" in reason
        assert remedy == f"let it take that row: run there `{altered}`; it is tried again by itself"
        made.look.execute(altered.encode())
        eventually(lambda: made.found.state == "following")
        made.become_equal()


def test_a_value_that_violates_a_domain_is_named_with_the_remedy(source: Stage, there: Cluster):
    """Its check is as the source's is: only what its function says is not."""
    create = (
        "create function {}(int) returns boolean language sql immutable as 'select {}'",
        "create domain tame as int constraint good check (is_good(value))",
        "create table pets (id int primary key, n tame)",
    )
    write(source, create[0].format("is_good", "true"), *create[1:])
    here = create[0].format("is_good", "$1 < 5"), *create[1:]
    with copying(source, there, *here, tables=["pets"], copy="none") as made, made.running():
        source.run("insert into pets values (1, 5)")
        source.arrive()
        reason, remedy = eventually(partial(stops, made))
        assert 'value for domain public.tame violates check constraint "good"' in reason
        assert 'run there `alter domain "public"."tame" drop constraint "good"`' in remedy
        made.look.execute("alter domain tame drop constraint good")
        eventually(lambda: made.found.state == "following")
        made.become_equal()
    source.run("drop table pets", "drop domain tame", "drop function is_good")
