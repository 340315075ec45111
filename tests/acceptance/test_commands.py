"""`status`, `check` and `slots` beside a running server: what people see, `--json`, exit statuses."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from pipeline.wal import lsn
from tests.fixtures.postgres import unique
from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(tmp_path: Path, source_dsn: str, database_dsn: str, slot_name: str) -> Command:
    """Run a command with this test's settings; it must end with `status` and say nothing on standard error."""

    def run(*arguments: str, status: int = 0, **more: object) -> subprocess.CompletedProcess[str]:
        settings = {"source_dsn": source_dsn, "database_dsn": database_dsn, "slot": slot_name}
        done = run_command(*arguments, folder=tmp_path, **settings, **more)
        assert done.returncode == status, done
        assert done.stderr == ""
        return done

    return run


def as_json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def nobody_holds_a_role(database_dsn: str) -> None:
    """Sessions end a moment after their processes, and with them the locks."""
    held = "select from pg_locks join pg_database d on d.oid = database where locktype = 'advisory'"
    with psycopg.connect(database_dsn, autocommit=True) as log:
        eventually(lambda: log.execute(f"{held} and datname = current_database()".encode()).rowcount == 0)


def test_beside_a_running_server(
    serve: Callable[..., Serving], command: Command, source_dsn: str, database_dsn: str, slot_name: str
) -> None:
    with psycopg.connect(source_dsn, autocommit=True) as conn:
        conn.execute("create table orders (id int primary key); create table notes (text text)")
        server = serve()
        conn.execute("insert into orders select generate_series(1, 1000)")

    def arrived() -> dict[str, Any]:
        now: dict[str, Any] = as_json(command("status", "--json"))
        assert now["events"] == 1000
        assert now["lag_seconds"] == 0
        assert {role["role"]: role["state"] for role in now["roles"]} == dict.fromkeys(
            ("followers", "replication", "schedule", "serve", "shuffle", "snapshot"), "running"
        )
        return now

    now = eventually(arrived)
    assert now["reasons"] == []
    assert now["slot"] == slot_name
    assert (now["staged_changes"], now["staged_transactions"], now["last_seq"]) == (1000, 1, 1000)
    for name in ("source_lsn", "confirmed_lsn", "staged_lsn", "shuffled_lsn"):
        assert lsn.parse(now[name]) > 0
    assert list(now["not_captured"]) == ["public.notes"]

    def up_to_date() -> str:
        shown = command("status", "--all").stdout
        assert shown.startswith("replicating\n")
        assert "limited by   nothing: the log is up to date" in shown
        return shown

    shown = eventually(up_to_date)
    assert [stage["stage"] for stage in now["lag"]["stages"]] == ["decoded", "received", "staged", "shuffled"]
    assert "1,000 changes in 1 transaction " in shown
    assert "1,000 events in the log, newest seq 1000" in shown
    assert "public.notes   only inserts and truncates: the table has no replica identity" in shown

    checked = as_json(command("check", "--json", http_port=server.port))["data"]
    found = {finding["name"]: finding for finding in checked}
    assert found["slot"]["level"] == "ok"
    assert "port" not in found  # this server itself listens there
    assert {tuple(finding["sql"]) for finding in found.values()} == {()}
    assert command("check", "--sql").stdout == ""
    assert "read by our worker" in found["slot"]["text"]
    assert found["replica identity"]["level"] == "warning"
    assert "was created by this server" in found["publication"]["text"]

    [slot] = [slot for slot in as_json(command("slots", "list", "--json"))["data"] if slot["name"] == slot_name]
    assert (slot["plugin"], slot["holder"][:9], slot["two_phase"]) == ("pgoutput", "pipeline ", False)
    assert lsn.parse(slot["confirmed_lsn"]) > 0
    assert f"(pid {slot['active_pid']})" in command("slots", "list").stdout

    assert server.stop() == 0
    nobody_holds_a_role(database_dsn)
    stopped = command("status", "--all", status=1).stdout
    assert stopped.startswith("not replicating\n  replication is not running\n  shuffle is not running\n")
    now = as_json(command("status", "--json", status=1))
    assert now["reasons"] == ["replication is not running", "shuffle is not running"]
    assert (now["lag"]["limited_by"]["part"], now["lag"]["also"][0]["part"]) == ("worker", "shuffle")
    assert now["replicating"] is False
    roles = "|".join(role["role"] for role in now["roles"])
    assert dict(re.findall(rf"^({roles}) +(\w+(?: \w+)*?)  ", stopped, re.MULTILINE)) == {
        role["role"]: role["state"] for role in now["roles"]
    }
    assert "running" not in {role["state"] for role in now["roles"]}


def test_a_server_that_was_killed_is_not_said_to_run(
    serve: Callable[..., Serving], command: Command, database_dsn: str
) -> None:
    serve(export_schedule="*/5 * * * *").kill()
    nobody_holds_a_role(database_dsn)
    with psycopg.connect(database_dsn, autocommit=True) as conn:
        conn.execute("update pipeline.roles set state = 'waiting', reason = 'from before' where role = 'shuffle'")
    now, shown = as_json(command("status", "--json", status=1)), command("status", status=1).stdout
    assert {role["state"] for role in now["roles"]} == {"not running"}
    assert now["reasons"] == ["replication is not running", "shuffle is not running"]
    assert shown.startswith("not replicating\n  replication is not running\n  shuffle is not running\n\n")
    assert now["exports"]["next_run"] is None and "next run" not in shown


def test_sql_for_an_administrator(tmp_path: Path, source_dsn: str, database_dsn: str, slot_name: str) -> None:
    role = unique("plain")
    with psycopg.connect(source_dsn, autocommit=True) as conn:
        conn.execute(SQL("create role {} login").format(Identifier(role)))
    settings = {"source_dsn": f"{source_dsn} user={role}", "database_dsn": database_dsn, "slot": slot_name}
    try:
        done = run_command("check", "--sql", "--at", "source", folder=tmp_path, **settings)
        assert done.returncode == 0, done
        first, second = done.stdout.splitlines()
        assert first == f'alter role "{role}" with replication;'
        assert second.startswith("grant create on database ") and second.endswith(f' to "{role}";')
        done = run_command("check", "--sql", "--json", folder=tmp_path, **settings)
        assert (done.returncode, done.stdout) == (2, "") and "exclude each other" in done.stderr
        done = run_command("check", "--at", "pipeline", folder=tmp_path, **settings)
        assert done.returncode == 2 and "--at selects" in done.stderr
    finally:
        with psycopg.connect(source_dsn, autocommit=True) as conn:
            conn.execute(SQL("drop role {}").format(Identifier(role)))


def test_status_before_the_first_start(command: Command) -> None:
    assert as_json(command("status", "--json", status=1))["reasons"] == [
        "replication has never run",
        "shuffle has never run",
    ]


def test_migrate_twice(tmp_path: Path, source_dsn: str) -> None:
    first = run_command("migrate", folder=tmp_path, source_dsn=source_dsn, database_dsn=source_dsn)
    again = run_command("migrate", folder=tmp_path, source_dsn=source_dsn, database_dsn=source_dsn)
    assert first.stdout.startswith("pipeline database: empty → ")
    assert again.stdout.startswith("already at ")
