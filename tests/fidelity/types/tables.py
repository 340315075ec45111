"""The tables of these tests, made before replication begins: one for each group of types, and what other tests need."""

from __future__ import annotations

import psycopg
from psycopg import sql

from tests.fidelity.types import cases
from tests.fidelity.types.cases import Case
from tests.fidelity.types.strategies import COLUMNS

_DRAWN = 6
DRAWN = {
    f"drawn_{number}": list(COLUMNS)[first : first + _DRAWN]
    for number, first in enumerate(range(0, len(COLUMNS), _DRAWN))
}
"""Tables of test_values.py, each with a column and an array column of some types."""

ODD_NAMES = (
    "seq",
    "record",
    "exact",
    "%s",
    "%(a)s",
    "{}",
    "{0}",
    'a "b"',
    "Ünï 😀",
    "x" * 63,
    "select",
    ".",
    "\\",
    "'",
    "$1",
)
ODD_COLUMNS = (*ODD_NAMES, "ctid2", "*", " ", "a:b", "\t")
ODD_TABLES = ODD_NAMES
MANY = 1600
"""Columns that a table may have at most."""
OTHERS = (
    f"create table public.wide (id integer primary key, {', '.join(f'c{n} jsonb' for n in range(MANY - 1))})",
    "create table public.large (id integer primary key, words text, bytes bytea, document jsonb, raw json)",
)


def features(source: psycopg.Connection) -> set[str]:
    """What of Case.needs this server has."""
    found = {name for (name,) in source.execute("select name from pg_available_extensions")}
    try:
        source.execute("select xml '<a/>'")
    except psycopg.errors.FeatureNotSupported:
        return found
    return found | {"xml"}


def columns(source: psycopg.Connection, title: str) -> dict[str, Case]:
    """Name of the column -> what is in it, for that server."""
    major, has = source.info.server_version // 10000, features(source)
    return {
        f"c{number}": case
        for number, case in enumerate(cases.GROUPS[title])
        if case.since <= major and (not case.needs or case.needs in has)
    }


def create(source: psycopg.Connection) -> None:
    """Types and tables."""
    for name in features(source) & set(cases.EXTENSIONS):
        source.execute(cases.EXTENSIONS[name].encode())
    for statement in cases.SETUP:
        source.execute(statement.encode())
    for title in cases.GROUPS:
        source.execute(_kinds(title, columns(source, title)))
    for name, types in DRAWN.items():
        listed = ", ".join(f"c{n} {of}, c{n}_array {of}[]" for n, of in enumerate(types))
        source.execute(f"create table public.{name} (id integer primary key, {listed})".encode())
    odd = sql.SQL(", ").join([sql.SQL("{} text").format(sql.Identifier(name)) for name in ODD_COLUMNS])
    for name in ODD_TABLES:
        table = sql.Identifier("public", name)
        source.execute(sql.SQL("create table {} (id integer primary key, {})").format(table, odd))
    for statement in OTHERS:
        source.execute(statement.encode())


def _kinds(title: str, listed: dict[str, Case]) -> sql.Composed:
    parts = [(name, case.type) for name, case in listed.items()]
    parts += [(f"{name}_array", f"{case.type}[]") for name, case in listed.items() if case.nulls]
    return sql.SQL("create table public.{} (id integer primary key, {})").format(
        sql.Identifier(title),
        sql.SQL(", ").join([sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(of)) for name, of in parts]),
    )
