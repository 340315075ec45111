"""The example's tables: complete in an empty source, and never added to tables of a user."""

from __future__ import annotations

import psycopg

from pipeline.server import example

TABLES = "select relname, relreplident::text from pg_class where oid >= 16384 and relkind = 'r' order by 1"


def test_an_empty_source_gets_three_tables_once(source_dsn: str) -> None:
    for _ in range(2):
        example.create_tables(source_dsn)
    with psycopg.connect(source_dsn) as source:
        assert source.execute(TABLES).fetchall() == [("customers", "d"), ("orders", "f"), ("products", "d")]
        assert source.execute("select count(*) from orders join customers c on c.id = customer_id").fetchone() == (2,)


def test_a_source_with_a_table_stays_as_it_is(source_dsn: str) -> None:
    with psycopg.connect(source_dsn) as source:
        source.execute("create schema other; create table other.mine (id int)")
    example.create_tables(source_dsn)
    with psycopg.connect(source_dsn) as source:
        assert source.execute(TABLES).fetchall() == [("mine", "d")]
