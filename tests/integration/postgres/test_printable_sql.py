"""SQL that is printed among text, in one line: Postgres reads exactly the names and strings that were meant."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from pipeline import printable
from tests.fixtures.postgres import Cluster

FORGED = "o'r\"d\\e\nrs\x1b[2J\u202e\u2028\U000e0041"
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=15)


@pytest.fixture(scope="module")
def source(cluster: Cluster) -> Iterator[psycopg.Connection]:
    with cluster.database("printable") as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@settings(max_examples=40, deadline=None)
@given(NAMES, NAMES)
def test_postgres_reads_the_exact_name_and_string(source: psycopg.Connection, name: str, value: str) -> None:
    query = sql.SQL("select {} as {}").format(value, sql.Identifier(name)).as_string()
    shown = printable.sql(query)
    assert shown.isprintable()
    with source.cursor() as cursor:
        cursor.execute(shown.encode())
        assert cursor.description is not None
        assert (cursor.description[0].name, cursor.fetchone()) == (name, (value,))


def test_an_identifier_names_exactly_its_table(source: psycopg.Connection) -> None:
    name = printable.identifier("public", FORGED)
    source.execute(f"create table {name} ()".encode())
    found = source.execute("select relname from pg_class where relname = %s", [FORGED]).fetchone()
    source.execute(f"drop table {name}".encode())
    assert (found, printable.identifier(FORGED).isprintable()) == ((FORGED,), True)


def test_names_have_quotes_where_postgres_needs_them(source: psycopg.Connection) -> None:
    words = [row[0] for row in source.execute("select word from pg_get_keywords()").fetchall()]
    for word in [*words, "plain", "Upper", "1st", "a b"]:
        needed = source.execute("select quote_ident(%s)", [word]).fetchone()
        shown = printable.shortest(word)
        assert source.execute(f"select 1 as {shown}".encode()).description[0].name == word  # type: ignore[index]
        assert needed is not None
        assert needed[0] != word or shown == word or word in printable._RESERVED
        source.execute(f"create table if not exists {shown} ({shown} int); drop table {shown}".encode())
