"""The SQL of `check --sql --roles`: what it prints, that it can be run as printed, and that nothing is then missing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from pipeline.cli.render import cures
from pipeline.config.settings import Config, load
from pipeline.errors import ConfigError
from pipeline.operate.preflight import check, role_sql
from pipeline.operate.preflight.role_sql import SourceRoles
from tests.fixtures.postgres import Cluster, unique

TABLES = (
    "create schema shop",
    'create table shop."or\nders" (id int primary key)',
    "create table shop.parted (id int primary key) partition by range (id)",
    "create table shop.part partition of shop.parted for values from (0) to (9)",
    'create table "no\n\\! tes" (text text)',
    "create table secret (id int primary key)",
    "alter table secret enable row level security",
)


TAKEN = [
    ("alter role {first} noreplication", "replication right"),
    ("revoke usage on schema shop from {reader}", "snapshot rights"),
    ("revoke select on shop.part from {reader}", "snapshot rights"),
    ("alter role {reader} nobypassrls", "snapshot rights"),
    ("alter role {reader} nologin", "snapshot"),
    ("revoke connect on database {database} from public; grant connect on database {database} to {first}", "snapshot"),
    ("drop publication pipeline", "tables"),
]
"""What takes a right away, and the finding that names it."""


@pytest.fixture
def source_cluster(any_cluster: Cluster) -> Cluster:
    return any_cluster


@pytest.fixture
def source(source_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        for statement in TABLES:
            connection.execute(statement.encode())
        yield connection


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str, tmp_path: Path) -> Config:
    return load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name, data_dir=tmp_path)


def printed(config: Config, roles: SourceRoles, capsys: pytest.CaptureFixture[str]) -> str:
    assert cures.show(check.missing_roles(config, roles), None) == 0
    return capsys.readouterr().out


def run_by_psql(dsn: str, text: str) -> None:
    """Run printed SQL as an administrator does; without psql, by psycopg."""
    if shutil.which("psql") is None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(text.encode())
        return
    command = ["psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", dsn]
    done = subprocess.run(command, input=text, capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("any_cluster", [18], indirect=True)
@pytest.mark.parametrize("both", [False, True], ids=["two", "one"])
def test_it_is_run_as_printed_and_then_nothing_is_missing(
    config: Config, source: psycopg.Connection, capsys: pytest.CaptureFixture[str], both: bool
) -> None:
    first = unique('wal "x\u2028\n\\! touch x')
    roles = SourceRoles(first, first if both else unique("reader"))
    try:
        text = printed(config, roles, capsys)
        statements = [line for line in text.splitlines() if not line.startswith("-- ")]
        comments = [line for line in text.splitlines() if line.startswith("-- ")]
        name = sql.Identifier(first).as_string(source)
        attributes = "login replication" + (" bypassrls" if both else "")
        assert text.index(f"create role {name} {attributes};") < text.index("grant usage on schema shop to")
        assert "create publication" in text and "for all tables" not in "".join(statements)
        assert "tes" not in "".join(statements), "its updates would fail"
        strings = [json.loads(found) for line in comments for found in re.findall(r'"(?:[^"\\]|\\.)*"', line)]
        assert {first, roles.reading, "public.no\n\\! tes"} <= set(strings)
        assert "".join(comments).isascii()
        assert any("every change of this database and drop its slots" in line for line in comments) is both
        assert "run this command again" not in text, "it has the mark already"
        no_log = config.model_copy(update={"database_dsn": None})
        assert "After the first start, run this command again" in printed(no_log, roles, capsys)
        run_by_psql(config.source, text)
        assert printed(config, roles, capsys) == ""
        source.execute("create table later (id int primary key); alter publication pipeline add table later")
        reader = sql.Identifier(roles.reading).as_string(source)
        assert f"grant select on table public.later to {reader};" in printed(config, roles, capsys)
    finally:
        for role in {roles.replicating, roles.reading}:
            source.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))


@pytest.mark.long
@pytest.mark.parametrize("any_cluster", [18, 16], indirect=True)
def test_each_right_that_is_taken_away_is_named_and_printed(
    config: Config, source: psycopg.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    source.execute('drop table "no\n\\! tes"')  # which is not captured
    roles = SourceRoles(unique("first"), unique("reader"))
    names = {"first": roles.replicating, "reader": roles.reading, "database": source.info.dbname}
    dsns = {"source_dsn": roles.replicating, "source_read_dsn": roles.reading}
    small = config.model_copy(
        update={name: SecretStr(make_conninfo(config.source, user=user)) for name, user in dsns.items()}
    )

    def findings() -> list[str]:
        return [each.name for each in check.run(small) if each.level != "ok" and each.name != "port"]

    try:
        source.execute(printed(config, roles, capsys).encode())
        assert findings() == []
        for taking, name in TAKEN:
            source.execute(taking.format(**names).encode())
            assert name in findings(), taking
            source.execute(printed(config, roles, capsys).encode())
            assert findings() == [], taking
    finally:
        for role in names["first"], names["reader"]:
            source.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))


def test_names_of_roles() -> None:
    assert role_sql.parse("a,b") == SourceRoles("a", "b")
    assert role_sql.parse("a") == SourceRoles("a", "a")
    for text in ("", "a,", "a,b,c", "x" * 64, "a\0"):
        with pytest.raises(ConfigError, match="--roles takes one name, or two"):
            role_sql.parse(text)
