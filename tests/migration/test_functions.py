"""SQL functions are those of the newest version that booted, and keep what clients call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pipeline.errors import SchemaError
from pipeline.postgres import functions, migrations
from tests.fixtures.server import ROOT
from tests.migration.test_migrations import migrate_twice_at_once

SIGNATURES = Path(__file__).parent / "data" / "function_signatures.txt"
BY_HAND = """
create or replace function pipeline.log_head() returns bigint language sql stable set search_path = ''
as $$ select 42::bigint $$
"""


@pytest.fixture
def log(database_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        yield connection


def head(connection: psycopg.Connection[Any]) -> object:
    return connection.execute("select pipeline.log_head()").fetchall()[0][0]


def state(connection: psycopg.Connection[Any]) -> object:
    return connection.execute("select version, digest from pipeline.installed_functions").fetchone()


@pytest.mark.parametrize(
    "stale",
    [
        "update pipeline.installed_functions set digest = 'of other texts'",
        "update pipeline.installed_functions set version = version - 1",
        "delete from pipeline.installed_functions",
    ],
)
def test_functions_of_other_texts_are_replaced_at_the_next_boot(
    stale: str, database_dsn: str, log: psycopg.Connection[Any]
):
    log.execute(BY_HAND)
    log.execute(stale)
    migrations.upgrade(database_dsn)
    assert head(log) == 0
    assert state(log) == (functions.VERSION, functions.digest())


def test_functions_of_a_newer_version_are_left_alone(database_dsn: str, log: psycopg.Connection[Any]):
    log.execute(BY_HAND)
    log.execute("update pipeline.installed_functions set version = version + 1, digest = 'of newer texts'")
    migrations.upgrade(database_dsn)
    assert head(log) == 42
    assert state(log) == (functions.VERSION + 1, "of newer texts")


def test_two_servers_that_boot_together_install_them_once(
    database_dsn: str, log: psycopg.Connection[Any], tmp_path: Path
):
    log.execute(BY_HAND)
    log.execute("update pipeline.installed_functions set digest = 'of other texts', installed_at = '2000-01-01'")
    migrate_twice_at_once(database_dsn, tmp_path)
    assert head(log) == 0
    assert state(log) == (functions.VERSION, functions.digest())


def test_a_boot_with_current_functions_takes_no_lock(database_dsn: str):
    with migrations.engine(database_dsn).connect() as holder, migrations.migration_lock(holder):
        boot = threading.Thread(target=migrations.upgrade, args=[database_dsn])
        boot.start()
        boot.join(120)  # one that waits for it gives up before
        assert not boot.is_alive()


def test_a_function_of_somebody_else_is_a_plain_line(database_dsn: str, log: psycopg.Connection[Any]):
    log.execute("update pipeline.installed_functions set digest = 'of other texts'")
    log.execute("drop function pipeline.log_head()")
    log.execute("create function pipeline.log_head() returns text language sql as $$ select 'mine' $$")
    with pytest.raises(SchemaError, match="cannot change return type of existing function"):
        migrations.upgrade(database_dsn)


def test_signatures_are_those_that_clients_know(log: psycopg.Connection[Any]):
    """A client of the version before calls them: a signature goes one version after its successor has come."""
    log.execute("set search_path = ''")
    rows = log.execute(
        "select format('%s(%s) returns %s', proname, pg_get_function_arguments(oid), pg_get_function_result(oid))"
        " from pg_proc where pronamespace = 'pipeline'::regnamespace order by 1"
    )
    assert "".join(f"{row[0]}\n" for row in rows) == SIGNATURES.read_text()


def test_every_file_is_installed():
    rooms = ROOT / "pipeline"
    there = {(".".join(path.relative_to(rooms).parts[:-2]), path.stem) for path in rooms.glob("**/functions/*.sql")}
    assert sorted((package, name) for package, names in functions.ORDER for name in names) == sorted(there)
