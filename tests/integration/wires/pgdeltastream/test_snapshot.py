"""Pages of a session's snapshot: values, names, order; errors that spoil nothing; large answers; clients that leave."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing
from typing import Any, Literal

import psycopg
import pytest

from pipeline.errors import PipelineError, SessionGoneError, StatementRefusedError, TableRefusedError
from pipeline.postgres.connections import AsyncConnection
from pipeline.postgres.queries import statement
from pipeline.wires.pgdeltastream.sessions import snapshot
from pipeline.wires.pgdeltastream.sessions.page_query import SnapshotPage
from pipeline.wires.pgdeltastream.sessions.snapshot import ExportedSnapshot, SnapshotRegistry
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.session_site import Site, first_start, site_at
from tests.fixtures.waiting import eventually

TABLES = """
    create table plain (id int primary key, name text, grade int);
    insert into plain select i, 'n' || i, i % 3 from generate_series(1, 30) i;
    create table "Mixed" ("Id" int primary key, "od""d" text);
    insert into "Mixed" values (1, 'x');
    create schema other;
    create table other.plain (id int primary key);
    create table types (
        id int primary key, t text, n numeric(12, 3), f float8, b bool, j json, jb jsonb, y bytea, u uuid,
        at timestamptz, a int[], made int generated always as (id * 2) stored
    );
    create domain document as jsonb;
    create domain amount as int;
    create table domains (id int primary key, d document, m amount);
    insert into domains values (1, '{"a": 1}', 5);
    create table parted (id int, v text, primary key (id)) partition by range (id);
    create table low partition of parted for values from (0) to (10);
    create table high (v text, id int primary key);
    alter table parted attach partition high for values from (10) to (21);
    insert into parted select i, 'v' || i from generate_series(1, 20) i;
    create table bare (id int) partition by range (id);
    create table parent (id int primary key);
    create table child () inherits (parent);
    alter table child add primary key (id);
    insert into parent values (1);
    insert into child values (2);
    create table empty_of_columns ();
    insert into empty_of_columns default values;
    create table many (id int primary key, filling text);
    insert into many select i, repeat('x', 10000) from generate_series(1, 1200) i"""
VALUES = r"""
    insert into types values (1, E'\\\n"é\u0001', 12.340, 'NaN', true,
        ('{"b": 1,' || chr(10) || ' "b":2}')::json, '[1, {"z": 1}]',
        '\xdead', '00000000-0000-0000-0000-000000000001', '2020-01-02 03:04:05+00', '{1,2}');
    insert into types values (2)"""


@pytest.fixture(scope="module")
def filled(module_site: Site) -> Site:
    module_site.run(TABLES, VALUES)
    return module_site


@pytest.fixture(scope="module")
def exported(filled: Site) -> Iterator[ExportedSnapshot]:
    """One for all that only read."""
    yield filled.create()
    filled.clear()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def read(
    site: Site,
    exported: ExportedSnapshot,
    table: str,
    offset: int = 0,
    limit: int = 100,
    order_by: tuple[str, Literal["asc", "desc"]] | None = None,
) -> str:
    async with aclosing(snapshot.rows(site.config, exported, SnapshotPage(table, offset, limit, order_by))) as pieces:
        return b"".join([piece async for piece in pieces]).decode()


def page(site: Site, exported: ExportedSnapshot, table: str, *arguments: Any) -> Any:
    return json.loads(run(read(site, exported, table, *arguments)))


def test_rows_with_nulls_are_each_on_one_page_while_not_null_is_not_valid(filled: Site):
    with psycopg.connect(filled.config.source, autocommit=True) as source:
        if source.info.server_version < 180000:
            pytest.skip("before Postgres 18, each not null is valid")
        name = unique("late")
        source.execute(f"create table {name} (id int unique, other int not null unique)".encode())
        source.execute(f"alter table {name} add constraint late not null id not valid".encode())
        query = statement("wires.pgdeltastream.sessions", "page_columns")
        with source.cursor() as cursor:
            [oid] = cursor.execute("select %s::regclass::oid", [name]).fetchone() or [0]
            found = cursor.execute(query, {"oid": oid}).fetchall()
        source.execute(f"drop table {name}".encode())
    assert {column[0]: column[-1] for column in found} == {"id": False, "other": True}


def test_values_are_those_of_the_stream_and_json_is_nested(filled: Site, exported: ExportedSnapshot):
    found = run(read(filled, exported, "types", 0, 100, ("id", "asc")))
    first = (
        '{"a":"{1,2}","at":"2020-01-02 03:04:05+00","b":true,"f":null,"id":1,"j":{"b": 1,\n "b":2},"jb":[1, {"z": 1}],'
        '"made":2,"n":12.340,"t":"\\\\\\n\\"é\\u0001","u":"00000000-0000-0000-0000-000000000001","y":"dead"}'
    )
    second = (
        '{"a":null,"at":null,"b":null,"f":null,"id":2,"j":null,"jb":null,"made":4,"n":null,"t":null,"u":null,"y":null}'
    )
    assert found == f"[{first},{second}]"
    assert page(filled, exported, "domains") == [{"id": 1, "d": {"a": 1}, "m": "5"}]


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("plain", 30),
        ("public.plain", 30),
        ("PLAIN", 30),
        ('"public"."plain"', 30),
        ("other.plain", 0),
        ('"Mixed"', 1),
        ("Mixed", 1),
        ("public.Mixed", 1),
        ("parted", 20),
        ("low", 9),
        ("bare", 0),
        ("parent", 1),
        ("child", 1),
        ("empty_of_columns", 1),
    ],
)
def test_a_table_by_plain_or_quoted_name(filled: Site, exported: ExportedSnapshot, table: str, rows: int):
    assert len(page(filled, exported, table)) == rows


@pytest.mark.parametrize(
    "table",
    [
        "missing",
        "(select 1) q",
        "plain; drop table plain",
        'plain"; drop table plain; --',
        "plain where true",
        "mixed",
        "pg_catalog.pg_class",
        "pg_authid",
        "plain_pkey",
        "pg_sleep(1)",
        "a.b.c.d",
        "16384",
        "-",
        "\0",
        "",
        "x" * 10_000,
    ],
)
def test_what_is_no_table_of_ours_is_refused_and_has_no_effect(filled: Site, exported: ExportedSnapshot, table: str):
    with pytest.raises(TableRefusedError, match="does not exist, or is not published"):
        page(filled, exported, table)
    assert len(page(filled, exported, "plain")) == 30


@pytest.mark.parametrize(
    "column", ["missing", "id; drop table plain", "1", "ctid", "id, name", "lower(name)", "\0", ""]
)
def test_what_is_no_column_is_refused(filled: Site, exported: ExportedSnapshot, column: str):
    with pytest.raises(TableRefusedError, match="has no column"):
        page(filled, exported, "plain", 0, 10, (column, "asc"))


def test_a_column_without_an_order_is_an_error_and_spoils_nothing(filled: Site, exported: ExportedSnapshot):
    with pytest.raises(StatementRefusedError, match="could not identify an ordering operator for type json"):
        page(filled, exported, "types", 0, 10, ("j", "asc"))
    assert len(page(filled, exported, "types", 0, 10, ("ID", "desc"))) == 2


@pytest.mark.parametrize(
    ("table", "column", "direction"),
    [
        ("plain", "", "asc"),
        ("plain", "grade", "asc"),
        ("plain", "GRADE", "desc"),
        ("plain", "id", "desc"),
        ("parted", "", "asc"),
        ("parted", "v", "desc"),
        ("parted", "id", "asc"),
    ],
)
def test_pages_are_the_table_and_no_row_is_on_two(
    filled: Site, exported: ExportedSnapshot, table: str, column: str, direction: Literal["asc", "desc"]
):
    order_by = (column, direction) if column else None
    whole = page(filled, exported, table, 0, 10**18, order_by)
    filled.run("insert into plain values (1000, 'later', 0)")
    pages = [row for offset in range(0, 35, 7) for row in page(filled, exported, table, offset, 7, order_by)]
    filled.run("delete from plain where id = 1000")
    assert pages == whole
    assert len({row["id"] for row in pages}) == len(pages) == (30 if table == "plain" else 20)
    if column:
        values = [row[column.lower()] for row in pages]
        assert values == sorted(values, reverse=direction == "desc")


@pytest.mark.parametrize(("offset", "limit"), [(0, 0), (31, 10), (10**12, 10), (2**64 - 1, 2**64 - 1), (0, 10**12)])
def test_any_offset_and_limit(filled: Site, exported: ExportedSnapshot, offset: int, limit: int):
    found = run(read(filled, exported, "plain", offset, limit))
    assert found == "[]" if offset or not limit else len(json.loads(found)) == 30


def test_twenty_at_once_with_errors_among_them(
    filled: Site, exported: ExportedSnapshot, monkeypatch: pytest.MonkeyPatch
):
    begin, close = snapshot._Reading._begin, snapshot._Reading._close
    at_once, most = set[snapshot._Reading](), 0

    async def begin_counted(reading: snapshot._Reading) -> AsyncConnection:
        nonlocal most
        at_once.add(reading)
        most = max(most, len(at_once))
        return await begin(reading)

    async def close_counted(reading: snapshot._Reading) -> None:
        at_once.discard(reading)
        await close(reading)

    async def all_at_once() -> list[str | BaseException]:
        tables = ["plain" if number % 3 else "missing" for number in range(20)]
        work = [read(filled, exported, table) for table in tables]
        return await asyncio.gather(*work, return_exceptions=True)

    monkeypatch.setattr(snapshot._Reading, "_begin", begin_counted)
    monkeypatch.setattr(snapshot._Reading, "_close", close_counted)
    found = run(all_at_once())
    assert most == snapshot.PAGES  # at the source one that was closed takes a moment to go
    assert [isinstance(each, TableRefusedError) for each in found] == [number % 3 == 0 for number in range(20)]
    assert len({each for each in found if isinstance(each, str)}) == 1


def test_a_large_answer_comes_in_pieces(filled: Site, exported: ExportedSnapshot):
    async def largest() -> tuple[int, int]:
        most = total = 0
        async for piece in snapshot.rows(filled.config, exported, SnapshotPage("many", 0, 10**6)):
            most, total = max(most, len(piece)), total + len(piece)
        return most, total

    tracemalloc.start()
    most, total = run(largest())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total > 12_000_000
    assert most < snapshot.PIECE_BYTES + 20_000
    assert peak < 6_000_000


def test_who_leaves_ends_the_query_and_gives_up_the_turn(filled: Site, exported: ExportedSnapshot):
    def many() -> aclosing[AsyncGenerator[bytes, None]]:
        return aclosing(snapshot.rows(filled.config, exported, SnapshotPage("many", 0, 10**6)))

    async def take_all(begun: asyncio.Event) -> None:
        async with many() as pieces:
            async for _ in pieces:
                begun.set()

    async def leave_often() -> None:
        for _ in range(2 * snapshot.PAGES):
            async with many() as pieces:
                await anext(pieces)
        begun = asyncio.Event()
        taking = asyncio.create_task(take_all(begun))
        await begun.wait()
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        assert len(json.loads(await read(filled, exported, "plain"))) == 30

    run(leave_often())
    eventually(lambda: pages_at(filled) == 0)


def pages_at(site: Site) -> int:
    return site.source.execute("select from pg_stat_activity where application_name like 'pipeline page %'").rowcount


def test_who_takes_nothing_loses_the_turn(filled: Site, exported: ExportedSnapshot, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(snapshot, "HOLD_SECONDS", 0.2)

    async def hold() -> None:
        held = [snapshot.rows(filled.config, exported, SnapshotPage("many", 0, 10**6)) for _ in range(snapshot.PAGES)]
        for pieces in held:
            await anext(pieces)
        assert len(json.loads(await read(filled, exported, "plain"))) == 30
        with pytest.raises(SessionGoneError, match=r"the client took no part of the page for 0\.2 s"):
            await anext(held[0])
        for pieces in held:
            await pieces.aclose()

    run(hold())


def test_a_snapshot_ends_with_its_connection(filled: Site):
    exported = filled.create()
    snapshots = SnapshotRegistry()
    snapshots.add(exported)
    slot = exported.session.slot
    assert snapshots.get(slot) is exported
    filled.run(
        f"select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pipeline session {slot}'"
    )
    eventually(lambda: not exported.alive)
    with pytest.raises(SessionGoneError, match=f'the snapshot of session "{slot}" has ended'):
        page(filled, exported, "plain")
    snapshots.end(slot)
    assert snapshots.get(slot) is None


def test_another_sessions_snapshot_is_another(filled: Site, exported: ExportedSnapshot):
    filled.run("insert into plain values (777, 'between', 0)")
    later = filled.create()
    filled.run("insert into plain values (778, 'after', 0)")
    assert [len(page(filled, each, "plain")) for each in (exported, later)] == [30, 31]
    filled.run("delete from plain where id > 700")
    assert [len(page(filled, each, "plain")) for each in (exported, later)] == [30, 31]


def test_what_was_altered_since_is_refused_and_not_shown_empty(filled: Site):
    """An ALTER TABLE that rewrites rows hides them from older snapshots; a truncate is in the stream."""
    for name in ("altered", "cut", "packed"):
        filled.run(f"create table {name} (id int primary key, n int)", f"insert into {name} values (1, 1)")
    filled.run("create table months (id int primary key) partition by range (id)")
    filled.run("create table january partition of months for values from (0) to (10)", "insert into months values (1)")
    filled.run(
        "create table february partition of months for values from (10) to (20)", "insert into months values (11)"
    )
    made = filled.create()
    filled.run("alter table altered alter n type bigint", "truncate cut", "vacuum full packed", "drop table january")
    filled.run("create table march partition of months for values from (20) to (30)", "insert into months values (21)")
    filled.run("alter table months detach partition february")
    with pytest.raises(TableRefusedError, match="altered was altered since the snapshot was taken"):
        page(filled, made, "altered")
    assert page(filled, made, "cut") == []
    assert page(filled, made, "packed") == [{"id": 1, "n": 1}]
    assert page(filled, made, "months") == [{"id": 11}]
    with pytest.raises(TableRefusedError):
        page(filled, made, "march")


def test_a_table_that_hides_rows_from_this_user_is_an_error(filled: Site):
    user = f"reader_{filled.source.info.dbname}"
    filled.run("create table if not exists secret (id int primary key)", "alter table secret enable row level security")
    made = filled.create()
    filled.run(f"create role {user} login", f"grant select on secret to {user}")
    config = filled.config.with_databases(
        psycopg.conninfo.make_conninfo(filled.config.source, user=user), filled.config.database
    )
    try:
        with pytest.raises(PipelineError, match="query would be affected by row-level security policy"):
            run(drain(config, made, "secret"))
        with pytest.raises(PipelineError, match="permission denied for table plain"):
            run(drain(config, made, "plain"))
    finally:
        filled.run(f"drop owned by {user}", f"drop role {user}")


async def drain(config: Any, made: ExportedSnapshot, table: str) -> None:
    async for _ in snapshot.rows(config, made, SnapshotPage(table, 0, 10)):
        pass


def test_what_somebodys_publication_leaves_out_is_left_out(cluster: Cluster):
    with site_at(cluster, cluster) as site:
        site.run(
            "create table t (id int primary key, shown text, hidden text,"
            " made int generated always as (id * 2) stored)",
            "insert into t values (1, 'a', 'x'), (2, 'b', 'y')",
            "create table whole (id int primary key, made int generated always as (id * 2) stored)",
            "insert into whole values (1)",
            "create table unpublished (id int primary key)",
            "create table parts (id int primary key, v text, hidden text) partition by range (id)",
            "create table low partition of parts for values from (0) to (10)",
            "create table high partition of parts for values from (10) to (99)",
            "insert into parts select n, n % 2, 'x' from generate_series(1, 20) n",
            f"create publication {site.config.publication} for table t (id, shown) where (id > 1), whole, low (id, v),"
            " high (id, v)",
        )
        first_start(site)
        made = site.create()
        assert page(site, made, "t") == [{"id": 2, "shown": "b"}]
        assert page(site, made, "whole") == [{"id": 1, "made": 2}]
        with pytest.raises(TableRefusedError):
            page(site, made, "unpublished")
        with pytest.raises(TableRefusedError, match="has no column 'hidden'"):
            page(site, made, "t", 0, 1, ("hidden", "asc"))
        whole = sorted(page(site, made, "parts"), key=lambda row: (row["v"], row["id"]))
        reader = unique("reader")
        site.run(f"create role {reader} login", f"grant select (id, shown) on t to {reader}")
        site.run(*(f"grant select (id, v) on {each} to {reader}" for each in ("low", "high")))
        as_owner, site.config = (
            site.config,
            site.config.with_databases(
                psycopg.conninfo.make_conninfo(site.config.source, user=reader), site.config.database
            ),
        )
        try:
            assert page(site, made, "t", 0, 5, ("shown", "desc")) == [{"id": 2, "shown": "b"}]
            pages = [row for offset in range(0, 20, 3) for row in page(site, made, "parts", offset, 3, ("v", "asc"))]
            assert sorted(pages, key=lambda row: (row["v"], row["id"])) == whole
            assert [row["v"] for row in pages] == [row["v"] for row in whole]
        finally:
            site.config = as_owner
            site.run(f"drop owned by {reader}", f"drop role {reader}")
        site.clear()
