"""What is read of a table at the source: the rows and columns that are published, as the follower takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pipeline.errors import DatabaseUnavailableError, FollowerError, StatementRefusedError
from pipeline.followers.copying.source_tables import CopyDelayedError, SourceTables
from pipeline.followers.running import remedies
from pipeline.postgres import connections, copy_data, session_settings
from pipeline.postgres.connections import Connection
from tests.fixtures.postgres import unique

SETUP = """
create table orders (id int primary key, state text, secret text, twice int generated always as (id * 2) stored);
insert into orders select n, 'state ' || n, 'secret' from generate_series(1, 10) n;
create table kinds (id int primary key) partition by range (id);
create table low partition of kinds for values from (0) to (10);
create table high partition of kinds for values from (10) to (20);
insert into kinds values (1), (11);
create table heir () inherits (orders);
insert into heir (id) values (99);
create table bare (id int primary key) partition by range (id);
create table hidden (id int primary key);
create publication chosen for table orders (id, state) where (id > 7), kinds, bare
    with (publish = 'insert');
"""


@pytest.fixture
def made(source_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute(SETUP)
        yield connection


@pytest.fixture
def source(made: psycopg.Connection) -> Iterator[Connection]:
    with connections.connect(made.info.dsn, "source", settings=session_settings.COPY) as connection:
        yield connection


@pytest.fixture
def tables(source: Connection) -> SourceTables:
    return SourceTables(source, source.info.dsn, ["chosen"], 0)


def oid(made: psycopg.Connection, table: str) -> int:
    [(found,)] = made.execute("select %s::regclass::oid::bigint", [table]).fetchall()
    return int(found)


def read(tables: SourceTables, table: int, columns: Callable[[list[str]], list[str]] = sorted) -> list[bytes]:
    """The lines of all its relations."""
    relations = tables.relations_at_rest(table)
    with tables.reading(table, relations):
        found = b""
        for relation in relations:
            with closing(tables.rows(relation, columns(relation.columns or []))) as blocks:
                found += b"".join(blocks)
    return found.splitlines()


def test_a_filter_and_a_list_of_columns_apply(made: psycopg.Connection, tables: SourceTables):
    assert read(tables, oid(made, "orders")) == [b"8\tstate 8", b"9\tstate 9", b"10\tstate 10"]


def test_all_partitions_are_read(made: psycopg.Connection, tables: SourceTables):
    assert read(tables, oid(made, "kinds")) == [b"1", b"11"]
    assert read(tables, oid(made, "bare")) == []


def test_rows_of_heirs_are_not(made: psycopg.Connection, tables: SourceTables):
    made.execute("alter publication chosen set table only orders")
    assert len(read(tables, oid(made, "orders"))) == 10


def test_a_generated_column_is_read_where_the_follower_has_it_as_another(
    made: psycopg.Connection, tables: SourceTables
):
    made.execute("alter publication chosen set table only orders")
    assert read(tables, oid(made, "orders"), lambda _: ["twice"])[:2] == [b"2", b"4"]


def test_what_is_not_published_is_no_table_without_rows(made: psycopg.Connection, tables: SourceTables):
    with pytest.raises(FollowerError, match=r"public\.hidden of the source is no longer published"):
        read(tables, oid(made, "hidden"))


def test_a_dropped_table_has_no_rows(made: psycopg.Connection, tables: SourceTables):
    table = oid(made, "kinds")
    made.execute("drop table kinds")
    assert read(tables, table) == []


def test_a_table_that_was_altered_after_the_look_is_looked_at_again(made: psycopg.Connection, tables: SourceTables):
    table = oid(made, "orders")
    relations = tables.relations_at_rest(table)
    made.execute("alter table orders rename to others")
    with pytest.raises(CopyDelayedError, match="renamed or dropped"), tables.reading(table, relations):
        pass
    made.execute("alter table others rename to orders")
    made.execute("alter table orders add more text")
    with pytest.raises(CopyDelayedError, match="altered just now"), tables.reading(table, relations):
        pass
    assert len(read(tables, table)) == 3


def test_only_those_who_wrote_before_the_look_are_waited_for(made: psycopg.Connection, tables: SourceTables):
    table = oid(made, "orders")
    with psycopg.connect(made.info.dsn) as first, psycopg.connect(made.info.dsn) as second:
        first.execute("update orders set state = 'open' where id = 1")
        with pytest.raises(CopyDelayedError, match=f"pid {first.info.backend_pid} "):
            tables.relations_at_rest(table)
        second.execute("update orders set state = 'open' where id = 2")
        with pytest.raises(CopyDelayedError, match=f"pid {first.info.backend_pid} "):
            tables.relations_at_rest(table)
        first.commit()
        assert tables.relations_at_rest(table)
        second.rollback()


def test_an_interrupted_read_leaves_the_connection_as_it_was(
    made: psycopg.Connection, source: Connection, tables: SourceTables
):
    made.execute("insert into orders (id, state) select n, repeat('x', 100) from generate_series(100, 50000) n")
    table = oid(made, "orders")
    relations = tables.relations_at_rest(table)
    with (
        pytest.raises(ZeroDivisionError),
        tables.reading(table, relations),
        closing(tables.rows(relations[0], ["id", "state"])) as blocks,
    ):
        assert len(next(blocks)) >= copy_data.BLOCK // 4
        raise ZeroDivisionError
    assert source.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert len(read(tables, table)) == 49904


def test_a_source_that_goes_away_is_named(made: psycopg.Connection, source: Connection, tables: SourceTables):
    made.execute("select pg_terminate_backend(%s)", [source.info.backend_pid])
    with pytest.raises(DatabaseUnavailableError, match=r"^source "):
        tables.relations_at_rest(oid(made, "orders"))


def test_large_rows_pass_whole(made: psycopg.Connection, source: Connection):
    made.execute("create table large (t text)")
    made.execute("insert into large values (repeat('x', 5000000)), ('y'), (repeat('z', 70000))")
    made.execute("create table there (t text)")
    with connections.connect(made.info.dsn, "there") as there:
        query = sql.SQL("copy public.there from stdin")
        with closing(copy_data.read_blocks(source, sql.SQL("copy public.large to stdout"))) as blocks:
            assert copy_data.write_blocks(there, query, blocks) == 3
    assert made.execute("table large except table there").fetchall() == []


def test_what_the_follower_refuses_is_raised_and_nothing_is_left(made: psycopg.Connection, source: Connection):
    made.execute("create table strict (n int check (n < 5))")
    with connections.connect(made.info.dsn, "there") as there:
        query = sql.SQL("copy public.strict from stdin")
        with pytest.raises(psycopg.errors.CheckViolation):
            copy_data.write_blocks(there, query, iter([b"1\n", b"7\n"]))
        with pytest.raises(ZeroDivisionError):
            copy_data.write_blocks(there, query, (bytes([49, 10]) if n else 1 // n for n in (1, 0)))  # type: ignore[misc]
        assert there.execute("select count(*) from public.strict").fetchall() == [(0,)]


def test_rows_that_the_source_hides_are_named_as_refused_there(made: psycopg.Connection):
    role = unique("reader")
    user = sql.Identifier(role)
    made.execute("alter table orders enable row level security")
    made.execute(sql.SQL("create role {0} login; grant select on orders to {0}").format(user))
    dsn = make_conninfo(made.info.dsn, user=role)
    try:
        with connections.connect(dsn, "source", settings=session_settings.COPY) as source:
            with pytest.raises(StatementRefusedError) as raised:
                read(SourceTables(source, dsn, ["chosen"], 0), oid(made, "orders"))
            assert "row-level security policy" in str(raised.value)
            assert f"42501); {connections.GRANT_AT_SOURCE}" in str(raised.value)
            report = remedies.report_of(None, raised.value)  # type: ignore[arg-type]
            assert (report.state, report.remedy) == (
                "stopped",
                "correct that at the source; it is tried again by itself",
            )
    finally:
        made.execute(sql.SQL("drop owned by {0}; drop role {0}").format(user))


def test_a_role_that_may_read_only_what_is_published_reads_it(made: psycopg.Connection):
    role = unique("reader")
    user = sql.Identifier(role)
    made.execute(sql.SQL("create role {0} login; grant select (id, state) on orders to {0}").format(user))
    dsn = make_conninfo(made.info.dsn, user=role)
    try:
        with connections.connect(dsn, "source", settings=session_settings.COPY) as source:
            found = read(SourceTables(source, dsn, ["chosen"], 0), oid(made, "orders"))
        assert found == [b"8\tstate 8", b"9\tstate 9", b"10\tstate 10"]
    finally:
        made.execute(sql.SQL("drop owned by {0}; drop role {0}").format(user))
