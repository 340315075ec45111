"""The psql command for people to copy: complete enough to connect, and without a password."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from pipeline.postgres import psql


@pytest.mark.parametrize(
    ("dsn", "command"),
    [
        ("postgresql://ann:not-to-be-seen@db.example:5433/shop", "psql -h db.example -p 5433 -U ann -d shop"),
        (
            "host=/run/postgresql dbname=shop password=not-to-be-seen connect_timeout=3",
            "psql -h /run/postgresql -d shop",
        ),
        ("dbname='my shop' hostaddr=''", "psql -d 'my shop'"),
        ("", "psql"),
        ("service=shop passfile=/not-to-be-seen", "psql service=shop"),
        (
            "host=db dbname=shop sslmode=require sslpassword=not-to-be-seen",
            "psql 'host=db dbname=shop sslmode=require'",
        ),
    ],
)
def test_the_command_names_the_database_without_secrets(dsn: str, command: str) -> None:
    assert psql.command(dsn) == command


def test_a_name_that_psql_would_take_for_parameters_stays_a_name() -> None:
    _, target = shlex.split(psql.command("host=db dbname='a=b'"))
    assert conninfo_to_dict(target) == {"host": "db", "dbname": "a=b"}


def test_a_query_is_one_word_of_the_shell() -> None:
    assert shlex.split(psql.command("dbname=shop", "select 'x' from \"T\""))[-2:] == ["-c", "select 'x' from \"T\""]


def test_another_psql_is_named_if_none_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert psql.command("dbname=shop", bin_dir=Path("/opt/pg/bin")) == "/opt/pg/bin/psql -d shop"
