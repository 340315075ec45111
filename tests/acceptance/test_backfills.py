"""`pipeline backfill` beside a running server: what is read, what is left alone, and what people see of it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pipeline import logs
from pipeline.cli import main as cli
from tests.fixtures.command_server import forker
from tests.fixtures.server import Serving
from tests.fixtures.waiting import PATIENCE, eventually

ROWS = 9_000
Command = Callable[..., Any]


@pytest.fixture
def command(
    tmp_path: Path,
    source_dsn: str,
    database_dsn: str,
    slot_name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """`pipeline backfill …` on this test's databases; it must end with `status`. Returns its JSON, or its text."""
    monkeypatch.chdir(tmp_path)
    for module, name in ((cli, "setproctitle"), (logs, "setup")):
        monkeypatch.setattr(module, name, lambda *_: None)
    for name, value in (("source_dsn", source_dsn), ("database_dsn", database_dsn), ("slot", slot_name)):
        monkeypatch.setenv(f"PIPELINE_{name.upper()}", value)

    def run(*arguments: str, status: int = 0) -> Any:
        monkeypatch.setattr(sys, "argv", ["pipeline", "backfill", *arguments])
        capsys.readouterr()
        assert cli.main() == status
        said = capsys.readouterr()
        assert said.err.count("\n") == (1 if status else 0), said
        return json.loads(said.out) if "--json" in arguments and "--wait" not in arguments else said.out + said.err

    return run


def test_beside_a_running_server(
    serve: Callable[..., Serving], command: Command, source: psycopg.Connection, log: psycopg.Connection
) -> None:
    source.execute("insert into t select generate_series(1, %s)", [ROWS])
    server = serve(snapshot="never")
    said = "PIPELINE_SNAPSHOT is never: rows that tables have when they join are not read"
    eventually(lambda: said in server.log())

    with source.transaction():
        source.execute("select pg_current_xact_id()")
        begun = command("start", "t", "--where", "id > 5000", "--json")
        number = str(begun["id"])
        assert (begun["table"], begun["condition"], begun["server_runs"]) == ("public.t", "id > 5000", True)
        assert f"backfill {number} of public.t is " in command("start", "public.t", status=1)

        def held() -> None:
            now = command("show", number, "--json")
            assert now["state"] == "waiting" and f"as pid {source.info.backend_pid} of" in (now["reason"] or "")

        eventually(held)
        assert command("pause", number).startswith(f"backfill {number} of public.t is paused")
        assert "it cannot be paused" in command("pause", number, status=1)
    assert command("list", "--json")["data"][0]["state"] == "paused"
    command("resume", number)
    eventually(lambda: command("show", number, "--json")["state"] == "complete")
    rows = "select count(*), count(distinct record_pk), min(record_pk::int) from sequin_events where action = 'read'"
    assert log.execute(rows).fetchone() == (ROWS - 5000, ROWS - 5000, 5001)
    assert log.execute("select state from pipeline.snapshots").fetchall() == [("not read",)]

    with source.transaction():
        source.execute("select pg_current_xact_id()")
        number = str(command("start", "t", "--json")["id"])
        assert command("cancel", number) == f"backfill {number} of public.t is cancelled\n"
        assert "is cancelled; only one that is paused can be resumed" in command("resume", number, status=1)

    said = command("start", "t", "--wait")
    assert f"public.t is complete: {ROWS:,} rows read" in said.splitlines()[-1]
    query = "select state, rows, complete_seq is not null from pipeline.snapshots"
    assert log.execute(query).fetchone() == ("complete", ROWS, True)


def test_who_waits_for_one_learns_how_it_ends(
    serve: Callable[..., Serving], command: Command, source: psycopg.Connection, tmp_path: Path
) -> None:
    source.execute("insert into t values (1); create table u (id int primary key); insert into u values (1)")
    serve(snapshot="never")
    with source.transaction():
        source.execute("select pg_current_xact_id()")
        waiting = Waiting("t", tmp_path)
        waiting.process.send_signal(signal.SIGINT)
        assert waiting.ended() == (
            "backfill 1 of public.t continues in the server; `pipeline backfill show 1` says how far it is,"
            " `pipeline backfill cancel 1` ends it",
            130,
        )
        assert command("show", "1", "--json")["state"] == "waiting"

        waiting = Waiting("u", tmp_path)
        command("cancel", "2")
        assert waiting.ended() == ("backfill 2 of public.u is cancelled", 1)

        waiting = Waiting("u", tmp_path)
        source.execute("drop table u")
    assert waiting.ended() == ("backfill 3 of public.u is failed: the table is no longer captured", 1)
    eventually(lambda: command("show", "1", "--json")["state"] == "complete")


class Waiting:
    """`backfill start TABLE --wait`, with the settings of this environment, once the backfill waits."""

    def __init__(self, table: str, folder: Path) -> None:
        self._errors = folder / "errors"
        reading, writing = os.pipe()
        self._said = os.fdopen(reading)
        with os.fdopen(writing, "w") as output, self._errors.open("w") as errors, Path(os.devnull).open() as nothing:
            files = (nothing.fileno(), output.fileno(), errors.fileno())
            self.process = forker().start(["backfill", "start", table, "--wait"], folder, os.environ, files)
        while "waits for transactions" not in (line := self._said.readline()):
            assert line, self._errors.read_text()

    def ended(self) -> tuple[str, int]:
        """Return the last line that it has printed, and its status; it logs nothing."""
        with self._said:
            said = self._said.read()
        assert self._errors.read_text() == ""
        return said.splitlines()[-1], self.process.wait(PATIENCE)


def test_a_partition_that_was_dropped_is_named_until_that_is_settled(
    serve: Callable[..., Serving], command: Command, source: psycopg.Connection, log: psycopg.Connection
) -> None:
    source.execute("create table p (id int primary key) partition by range (id)")
    source.execute("create table p1 partition of p for values from (0) to (9)")
    source.execute("create table p2 partition of p for values from (9) to (99)")
    source.execute("insert into p values (1), (10)")
    server = serve()
    state = """select state from pipeline.snapshots where "table" = 'public.p'"""
    eventually(lambda: log.execute(state).fetchone() == ("complete",))
    source.execute("drop table p2")
    eventually(lambda: log.execute(state).fetchone() == ("not read",))
    assert "partition public.p2 left public.p: it was dropped" in server.log()
    [lacking] = command("list", "--json")["incomplete"]
    assert lacking["table"] == "public.p" and "partition public.p2 was dropped" in lacking["reason"]
    assert "partition public.p2" in command("list")
    assert "to make the log equal instead: pipeline backfill start p --differences" in command("settle", "p", status=2)
    assert "public.nope is no captured table" in command("settle", "public.nope", "--keep", status=2)
    kept = command("settle", "p", "--keep", "--always", "--json")
    assert kept == {"table": "public.p", "changes": 1, "always": True}
    assert log.execute(state).fetchone() == ("complete",)
    assert command("list", "--json")["incomplete"] == []
