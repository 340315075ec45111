"""Commands where a table and a role have names that would forge lines and rewrite a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pipeline.printable import escaped
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.server import run_command

FORGED = 't"\n\\! touch forged\nerror   all   is lost\x1b[2J\u202e\u2028\x85'

PUBLICATION = "theirs"


@pytest.fixture
def role(cluster: Cluster) -> Iterator[str]:
    name = unique("r\n\x1b[2Jole")
    with cluster.connect() as conn:
        conn.execute(sql.SQL("create role {} login replication").format(sql.Identifier(name)))
        yield name
        conn.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_names_are_escaped_for_people_and_exact_in_json_and_sql(
    source_dsn: str, database_dsn: str, role: str, slot_name: str, tmp_path: Path
) -> None:
    with psycopg.connect(source_dsn, autocommit=True) as source:
        names = {
            "table": sql.Identifier(FORGED),
            "role": sql.Identifier(role),
            "publication": sql.Identifier(PUBLICATION),
        }
        source.execute(sql.SQL("create table {table} (id int primary key)").format(**names))
        source.execute(sql.SQL("create table readable (id int primary key)"))
        source.execute(sql.SQL("grant select on readable to {role}").format(**names))
        source.execute(sql.SQL("create publication {publication} for table readable").format(**names))
        given = {
            "source_dsn": make_conninfo(source_dsn, user=role),
            "database_dsn": database_dsn,
            "slot": slot_name,
            "publication": PUBLICATION,
        }
        done = run_command("check", folder=tmp_path, **given)
        lines = done.stdout.split("\n")
        assert all(line.isprintable() and not line.startswith("error   all") for line in lines), lines
        assert escaped(FORGED) in done.stdout
        found = json.loads(run_command("check", "--json", folder=tmp_path, **given).stdout)["data"]
        assert any(FORGED in each["text"] for each in found)
        printed = run_command("check", "--sql", "--at", "source", folder=tmp_path, **given)
        assert sql.Identifier(FORGED).as_string() in printed.stdout
        source.execute(printed.stdout.encode())
        listed = source.execute("select tablename from pg_publication_tables where pubname = %s", [PUBLICATION])
        assert (FORGED,) in listed.fetchall()
        source.execute(sql.SQL("drop owned by {role}").format(**names))
