"""A pattern of tables means the same to Python, to a statement and to a function of the database."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import psycopg
import pytest

from pipeline.config import patterns
from pipeline.config.routes import Route

ODD = [
    "orders",
    "Orders",
    "o%s",
    "o_s",
    "a\\b",
    "\\*",
    "a*b",
    "a.b",
    "a",
    "b",
    "q\"o't",
    "größe",
    "表",
    "a\nb",
    "(a|b)",
    "[a]",
    "a+",
]
NAMES = ["", *ODD, "ors", "oxs", "ab", "axb", "bb", "grösse", "a.b.c"]
PARTS = [*ODD, "*", "o*s", "*b", "a*", "%", "_", "a.*", "**"]
LIKE = "select schema_name || '.' || table_name like any (%(patterns)s::text[])"
STORED = "select pipeline.matches(%(patterns)s::text[], schema_name, table_name)"
OF_NAMES = """
    from unnest(%(schemas)s::text[], %(tables)s::text[]) with ordinality n (schema_name, table_name, p) order by p
"""


@pytest.fixture
def connection(database_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        yield connection


def test_all_matchers_agree_on_odd_names(connection: psycopg.Connection[Any]) -> None:
    names = list(product(NAMES, repeat=2))
    schemas, tables = zip(*names, strict=True)
    values = {"schemas": list(schemas), "tables": list(tables)}
    asked = [(pattern,) for part in PARTS for pattern in (f"{part}.*", f"*.{part}", f"{part}.{part}")]
    found = 0
    for wanted in [("*",), ("a.b", "*.größe"), *asked]:
        expected = [patterns.matches(wanted, f"{schema}.{table}") for schema, table in names]
        for query, given in ((LIKE, patterns.likes(wanted)), (STORED, list(wanted))):
            rows = connection.execute(query + OF_NAMES, {**values, "patterns": given}).fetchall()
            assert [match for (match,) in rows] == expected, (query, wanted)
        if "." in wanted[0] and "\n" not in wanted[0]:  # a route takes no others
            route = Route(tables=wanted, events_table="a.b")
            assert [route.matches(schema, table, "insert") for schema, table in names] == expected, wanted
        found += sum(expected)
    assert found > len(asked)


def test_all_else_but_the_star_is_itself() -> None:
    assert patterns.matches(("public.o%s",), "public.o%s")
    assert not patterns.matches(("public.o%s", "public.o_s"), "public.oxs")
    assert not patterns.matches(("public.orders",), "public.Orders")
    assert patterns.matches(("public.a*b",), "public.a\n.b")
    assert not patterns.matches(("public.a",), "other.public.a")


def test_no_pattern_matches_everything(connection: psycopg.Connection[Any]) -> None:
    assert patterns.matches((), "public.orders")
    row = connection.execute("select pipeline.matches('{}', 'public', 'orders')").fetchone()
    assert row == (True,)
