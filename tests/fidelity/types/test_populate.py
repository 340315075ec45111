"""pipeline.populate for its callers: who may call it, under which settings, and what it makes of what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pipeline.config.settings import load
from pipeline.operate.repair import reader_role
from tests.fixtures.postgres import NEWEST, Cluster, unique
from tests.fixtures.server import ROOT

OTHER_SETTINGS = {
    "TimeZone": "America/St_Johns",
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "lc_monetary": "C",
    "search_path": "shadow, public",
    "array_nulls": "off",
    "xmloption": "document",
}
TABLES = r"""
    create schema shop;
    create domain shop.note as jsonb not null check (jsonb_typeof(value) in ('null', 'object'));
    create table shop.orders (id integer primary key, gone text, "odd ""%s" text, price money, at timestamptz,
        took interval, tags text[], part bytea, kind regclass, note shop.note, raw json, twice integer generated always
        as (id * 2) stored, doc jsonb);
    alter table shop.orders drop column gone;
    insert into shop.orders values (1, 'a "\ b', '-12.50', '2024-02-01 01:02:03+00', '-1 mon +1 day -00:00:01',
        '[0:1]={NULL,"NULL"}', '\x00ff5c', 'pg_class', 'null', '{"a": 1,  "a": 2}', default, '"text"');
    create domain shop.known as shop.orders;
    create schema shadow;
    create table shadow.pg_class ();
    grant usage on schema shop, shadow to public;
    grant select on shop.orders to public;
"""
RECORD = r"""{"id": 1, "odd \"%s": "a \"\\ b", "price": "-$12.50", "at": "2024-02-01 01:02:03+00",
    "took": "-1 mons +1 day -00:00:01", "tags": "[0:1]={NULL,\"NULL\"}", "part": "\\x00ff5c", "kind": "pg_class",
    "note": null, "raw": {"a": 2}, "twice": 2, "doc": "text"}"""
EXACT = r"""{"note": "null", "raw": "{\"a\": 1,  \"a\": 2}"}"""
PARTITION = "create table public.first_events partition of public.sequin_events for values from (1) to (10)"
EVENT = """
    insert into public.sequin_events (seq, source_database_id, source_table_oid, source_table_schema, source_table_name,
        record_pk, record, exact, action, committed_at)
    values (1, gen_random_uuid(), 1, 'shop', 'orders', '1', %s, %s, 'insert', now())
"""


@pytest.fixture(scope="module", params=NEWEST)
def reader(request: pytest.FixtureRequest, clusters: Callable[[int], Cluster]) -> Iterator[psycopg.Connection]:
    """What `migrate --reader` makes, with the settings of another user, and an event of a table that it may see."""
    cluster: Cluster = clusters(request.param)
    with cluster.database("events", cluster.template) as dsn:
        role = unique("reader")
        reader_role.ensure(load(database_dsn=dsn), role)
        with psycopg.connect(dsn, autocommit=True) as owner:
            owner.execute(TABLES)
            owner.execute(PARTITION)
            owner.execute(EVENT, [RECORD, EXACT])
            with psycopg.connect(make_conninfo(dsn, user=role), autocommit=True) as connection:
                for setting in OTHER_SETTINGS.items():
                    connection.execute("select set_config(%s, %s, false)", setting)
                yield connection
            owner.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))


def one(connection: psycopg.Connection, query: str, *values: str) -> object:
    row = connection.execute(query.encode(), values or None).fetchone()
    assert row is not None
    return row[0] if len(row) == 1 else row


def test_a_reader_has_the_row_whatever_its_settings(reader: psycopg.Connection):
    same = "select o *= pipeline.populate(null::shop.orders, e.record, e.exact) from shop.orders o, sequin_events e"
    assert one(reader, same) is True


def test_a_temporary_table_takes_no_name_of_the_catalog(reader: psycopg.Connection):
    reader.execute("create temp table pg_class ()")
    kind = "select (pipeline.populate(null::shop.orders, record, exact)).kind::oid from sequin_events"
    assert one(reader, kind) == 1259
    reader.execute("drop table pg_temp.pg_class")


def test_the_statement_of_the_page_runs(reader: psycopg.Connection):
    page = (ROOT / "docs/reference/types.md").read_text()
    statement = re.search(r"```sql\n(select seq, action, \(pipeline\.populate.*?)```", page, re.DOTALL)
    assert statement is not None
    shown = f"select seq, action, id, doc, tags[0:1] from ({statement[1].strip().removesuffix(';')}) s"
    found = reader.execute(shown.encode())
    assert found.fetchall() == [(1, "insert", 1, "text", [None, "NULL"])]


@pytest.mark.parametrize("exact", ["null", """'{"raw": "[ 1]"}'"""])
def test_columns_that_are_missing_keep_what_the_base_has(reader: psycopg.Connection, exact: str):
    built = f"""pipeline.populate(o, '{{"id": 7}}', {exact})"""
    query = (
        f"select ({built}).id, ({built}).note::text, ({built}).tags is not distinct from o.tags, ({built}).raw::text"
    )
    raw = '{"a": 1,  "a": 2}' if exact == "null" else "[ 1]"
    assert one(reader, f"{query} from shop.orders o") == (7, "null", True, raw)


def test_a_json_null_is_not_a_null(reader: psycopg.Connection):
    query = """select (pipeline.populate(null::shop.orders, '{"doc": null, "note": {}}', %s::jsonb)).doc::text"""
    assert one(reader, query, '{"doc": "null"}') == "null"
    assert one(reader, query, '{"raw": "1"}') is None


def test_a_domain_over_a_row_is_built_too(reader: psycopg.Connection):
    query = "select pg_typeof(pipeline.populate(null::shop.known, record, exact))::text from sequin_events"
    assert one(reader, query) == "shop.known"


UNREAD = {
    "regproc": "select 'abs(int)'::regprocedure::oid::regproc::text::regproc",
    "interval": "select make_interval(secs => -9223372036854.775808)::text::interval",
}


@pytest.mark.parametrize("statement", UNREAD.values(), ids=UNREAD)
def test_what_postgres_prints_and_does_not_read(reader: psycopg.Connection, statement: str):
    with pytest.raises((psycopg.errors.DataError, psycopg.errors.AmbiguousFunction)):
        reader.execute(statement.encode())


@pytest.mark.parametrize("value", ["'a & (b & c)'::tsquery", "'inf'::float8 - 'inf'::float8"])
def test_what_postgres_prints_and_reads_otherwise(reader: psycopg.Connection, value: str):
    """Not equal by `*=`, equal as text."""
    read = f"(({value})::text::{one(reader, f'select pg_typeof({value})::text')})"
    same = f"(select x from (select {value} as v) x) *= (select y from (select {read} as v) y)"
    assert one(reader, f"select {same}, ({value})::text = {read}::text") == (False, True)
