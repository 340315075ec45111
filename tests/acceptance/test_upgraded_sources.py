"""pg_upgrade of the source while a server reads it, as docs/operate/upgrade.md says."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from tests.fixtures.failing_over import ask
from tests.fixtures.postgres import free_port
from tests.fixtures.server import run_command, serving
from tests.fixtures.upgrading import start_cluster, upgrade
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.long
PATIENCE = 120
UNKNOWN_OPTIONS = "update pg_attribute set attoptions = null where attoptions::text ~ 'pg_attver'"
"""Remove an option that some builds of 15 add to each column, and that pg_upgrade to a plain 18 refuses."""
EVENTS = "select source_epoch, action, (record ->> 'id')::int from sequin_events order by seq"


@pytest.mark.parametrize("major", [18, 16, 15])
def test_the_log_continues_without_a_gap_after_pg_upgrade(
    major: int, server_directory: Path, database_dsn: str, slot_name: str, tmp_path: Path
) -> None:
    old = start_cluster(server_directory, major, free_port())
    source_dsn = old.tcp_dsn("postgres")
    settings = {"source_dsn": source_dsn, "database_dsn": database_dsn, "slot": slot_name}
    ask(old, "create table t (id int primary key)")
    ask(old, "insert into t values (1)")

    def run(*arguments: str) -> tuple[int, str]:
        done = run_command(*arguments, folder=tmp_path, http_port=free_port(), **settings)
        return done.returncode, done.stdout + done.stderr

    with (
        psycopg.connect(database_dsn, autocommit=True) as log,
        serving(tmp_path, source_dsn, database_dsn, slot_name) as start,
    ):
        server = start()
        expected = [(0, "read", 1)]
        eventually(lambda: log.execute(EVENTS).fetchall() == expected)
        ask(old, "insert into t values (2)")
        expected.append((0, "insert", 2))
        eventually(lambda: log.execute(EVENTS).fetchall() == expected)
        whole = "select epoch, complete_seq from pipeline.snapshot_tables"
        eventually(lambda: (log.execute(whole).fetchone() or (0, None))[1] is not None)
        ask(old, UNKNOWN_OPTIONS)
        old.stop()  # the server runs while the source ends: so the slot has everything
        server.kill()
        new = upgrade(old, major)
        _, found = run("check", "--json")
        errors = [each for each in json.loads(found)["data"] if each["level"] == "error"]
        assert [each["name"] for each in errors] == ["history"]
        assert "--upgraded" in str(errors)
        if major < 17:
            status, said = run("sources", "adopt", "--upgraded", "--yes")
            assert (status != 0, "has not kept slot" in said) == (True, True)
            status, said = run("sources", "adopt", "--yes")
        else:
            ask(new, "alter table t rename to moved")
            status, said = run("sources", "adopt", "--upgraded", "--yes")
            assert (status != 0, "public.t has another OID than before" in said) == (True, True)
            ask(new, "alter table moved rename to t")
            ask(new, "insert into t values (3)")
            status, said = run("sources", "adopt", "--upgraded", "--yes")
            assert "the log has all changes of the former cluster" in said
        assert status == 0, said
        if major < 17:
            ask(new, "insert into t values (3)")
        else:
            assert (log.execute(whole).fetchone() or ())[0] == 1
        start()
        eventually(lambda: log.execute(EVENTS).fetchall() == [*expected, (1, "insert", 3)])
        assert run("verify")[0] == 0


@pytest.mark.parametrize("reread", [(), ("--reread",)], ids=["", "reread"])
def test_a_follower_continues_after_pg_upgrade(
    reread: tuple[str, ...],
    server_directory: Path,
    database_dsn: str,
    follower_dsn: str,
    slot_name: str,
    tmp_path: Path,
) -> None:
    old = start_cluster(server_directory, 18, free_port())
    source_dsn = old.tcp_dsn("postgres")
    settings = {"source_dsn": source_dsn, "database_dsn": database_dsn, "slot": slot_name}
    ask(old, "create table t (id int primary key)")
    ask(old, "insert into t values (1)")
    with (
        psycopg.connect(follower_dsn, autocommit=True) as there,
        psycopg.connect(database_dsn, autocommit=True) as log,
        serving(tmp_path, source_dsn, database_dsn, slot_name) as start,
    ):

        def rows(*expected: int) -> None:
            assert there.execute("select id from t order by 1").fetchall() == [(each,) for each in expected]

        server = start(http_port=(port := free_port()))
        added = run_command("followers", "add", "reports", "--dsn", follower_dsn, folder=tmp_path, **settings)
        assert added.returncode == 0, added
        eventually(lambda: rows(1), PATIENCE, (AssertionError, psycopg.errors.UndefinedTable))
        ask(old, "insert into t values (2)")
        eventually(lambda: rows(1, 2), PATIENCE)
        old.stop()
        server.kill()
        new = upgrade(old, 18)
        adopted = run_command("sources", "adopt", "--upgraded", *reread, "--yes", folder=tmp_path, **settings)
        assert adopted.returncode == 0, adopted
        ask(new, "insert into t values (3)")
        ask(new, "delete from t where id = 1")
        start(http_port=port)
        eventually(lambda: rows(2, 3), PATIENCE)
        state = "select state, reason from pipeline.followers"
        eventually(lambda: log.execute(state).fetchall() == [("following", None)], PATIENCE)
        compared = "select count(*) from pipeline.backfills where kind = 'differences' and state = 'complete'"
        eventually(lambda: log.execute(compared).fetchone() == (len(reread),), PATIENCE)
        actions = [(epoch, action, number) for epoch, action, number in log.execute(EVENTS) if epoch]
        assert actions == [(1, "insert", 3), (1, "delete", 1)]  # so the comparison found nothing to append
