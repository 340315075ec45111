"""`pipeline consumers`: on the database directly, what people see, `--json`, errors and exit statuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from pipeline import logs
from pipeline.cli import main as cli
from pipeline.consumers.queue import consumers, queue_apply
from pipeline.log.table import DEFAULT
from pipeline.wal import lsn
from tests.fixtures.server import run_command
from tests.fixtures.small_log import SOURCE, add_inserts, small_log


class Shown(NamedTuple):
    stdout: str
    stderr: str


Command = Callable[..., Shown]


@pytest.fixture
def log(database_dsn: str) -> Iterator[psycopg.Connection]:
    with small_log(database_dsn, 3) as connection:
        yield connection


@pytest.fixture
def command(
    tmp_path: Path, database_dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """`pipeline consumers …` against this test's pipeline database; it must end with `status`."""
    monkeypatch.chdir(tmp_path)
    for module, name in ((cli, "setproctitle"), (logs, "setup")):
        monkeypatch.setattr(module, name, lambda *_: None)
    monkeypatch.setenv("PIPELINE_DATABASE_DSN", database_dsn)

    def run(*arguments: str, status: int = 0) -> Shown:
        monkeypatch.setattr(sys, "argv", ["pipeline", "consumers", *arguments])
        assert cli.main() == status
        said = capsys.readouterr()
        assert said.err.count("\n") == (1 if status else 0)
        return Shown(said.out, said.err)

    return run


def as_json(done: Shown) -> Any:
    return json.loads(done.stdout)


def fold(log: psycopg.Connection) -> None:
    log.execute(
        "insert into pipeline.shuffle_progress (source_id, epoch, last_seq) select %s, 0, max(seq) from sequin_events",
        [SOURCE],
    )
    while queue_apply.catch_up(log, SOURCE, DEFAULT, consumers.list_consumers(log)):
        continue


def test_from_the_first_to_the_last(command: Command, log: psycopg.Connection) -> None:
    assert command("list").stdout == "there are no consumers; create one: `pipeline consumers create NAME`\n"
    given = ("--tables", "public.orders, public.x*", "--actions", "insert, read", "--start", "beginning")
    log.execute("update sequin_events set action = 'read' where seq = 2")
    assert command("create", "mailer", *given, "--max-deliveries", "1").stdout == 'consumer "mailer" created\n'
    command("create", "audit", "--kind", "cursor", "--start", "1", "--events-table", "public.sequin_events")
    none = command("create", "none", "--events-table", "public.nothing", status=2)
    assert "there is no events table public.nothing; name one that a route sends changes to" in none.stderr
    fold(log)

    found = {each["name"]: each for each in as_json(command("list", "--json"))["data"]}
    assert (found["mailer"]["pending"], found["mailer"]["lag"]) == (3, 0)
    assert found["mailer"]["tables"] == ["public.orders", "public.x*"]
    assert (found["audit"]["pending"], found["audit"]["position"], found["audit"]["lag"]) == (None, 1, 2)
    assert found["audit"]["oldest_pending_seconds"] >= 0
    lines = command("list").stdout.splitlines()
    assert lines[1].split()[:6] == ["audit", "cursor", "active", "-", "-", "-"]
    assert lines[2].split()[:6] == ["mailer", "records", "active", "3", "0", "0"]

    assert as_json(command("pause", "mailer", "--json"))["state"] == "paused"
    assert as_json(command("show", "mailer", "--json"))["state"] == "paused"
    assert command("resume", "mailer").stdout == 'consumer "mailer" resumed\n'
    shown = command("show", "mailer").stdout
    assert "max deliveries       1" in shown and "insert, read" in shown
    assert as_json(command("reset", "mailer", "--start", "now", "--json"))["pending"] == 0
    assert "each row, with its last change" in shown
    command("create", "history", "--no-collapse")
    assert "each change" in command("show", "history").stdout
    assert as_json(command("delete", "history", "--json"))["collapse"] is False
    assert command("delete", "mailer").stdout == 'consumer "mailer" deleted\n'
    assert [each["name"] for each in as_json(command("list", "--json"))["data"]] == ["audit"]


def test_dead_letters(command: Command, log: psycopg.Connection) -> None:
    command("create", "mailer", "--start", "beginning", "--max-deliveries", "1")
    fold(log)
    assert command("dead-letters", "mailer").stdout == "mailer has no dead letters\n"
    log.execute("select pipeline.nack('mailer', array(select ack_id from pipeline.receive('mailer', 3)))")
    assert [each["seq"] for each in as_json(command("dead-letters", "mailer", "--json"))["data"]] == [1, 2, 3]
    letter = as_json(command("dead-letters", "mailer", "--json"))["data"][0]
    assert letter["commit_lsn"] == lsn.parse(letter["commit_lsn_text"])
    assert command("dead-letters", "mailer").stdout.splitlines()[1].split()[:4] == ["1", "public.orders", "0", "insert"]
    assert as_json(command("dead-letters", "mailer", "--retry", "--seq", "1", "--json")) == {"count": 1}
    assert command("dead-letters", "mailer", "--discard").stdout == "2 dead letters of mailer discarded\n"
    shown = as_json(command("show", "mailer", "--json"))
    assert (shown["pending"], shown["dead"]) == (1, 0)


WRONG: list[tuple[list[str], int, str]] = [
    (["show", "missing"], 1, 'there is no consumer "missing"; `pipeline consumers list` shows all'),
    (["delete", "missing"], 1, 'there is no consumer "missing"; `pipeline consumers list` shows all\n'),
    (["pause", "missing"], 1, 'there is no consumer "missing"; `pipeline consumers list` shows all\n'),
    (["dead-letters", "missing"], 1, 'there is no consumer "missing"; `pipeline consumers list` shows all\n'),
    (["create", "a b"], 2, "a consumer cannot be named 'a b'"),
    (["create", "x", "--kind", "queue"], 2, "kind is 'queue': give records or cursor"),
    (["create", "x", "--kind", "cursor", "--no-collapse"], 2, "collapse is for consumers of kind records"),
    (["create", "x", "--tables", "orders"], 2, "tables takes patterns like public.orders"),
    (["create", "x", "--tables", "a." + "*" * 33], 2, "tables takes patterns with at most 32 stars each"),
    (["create", "x", "--actions", "upsert"], 2, "actions takes insert, update, delete, truncate, read and message"),
    (["create", "x", "--start", "99"], 2, "start 99 is beyond the newest event, which is 3"),
    (["create", "x", "--visibility", "0"], 2, "visibility must be longer than 0"),
    (["create", "x", "--visibility", "long"], 2, "Invalid value"),
    (["dead-letters", "x", "--retry", "--discard"], 2, "--retry and --discard exclude each other"),
    (["dead-letters", "x", "--seq", "1"], 2, "--seq selects dead letters"),
]


def test_wrong_use(command: Command, log: psycopg.Connection) -> None:
    for arguments, status, said in WRONG:
        assert command(*arguments, status=status).stderr.startswith(f"pipeline: {said}"), arguments


def test_a_name_that_is_taken_and_the_wrong_kind(command: Command, log: psycopg.Connection) -> None:
    command("create", "c", "--kind", "cursor")
    assert "there is a consumer 'c' already" in command("create", "c", status=1).stderr
    assert "is of kind cursor" in command("dead-letters", "c", status=1).stderr


def test_a_database_that_was_never_migrated(tmp_path: Path, source_dsn: str) -> None:
    done = run_command("consumers", "list", folder=tmp_path, database_dsn=source_dsn)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "run `pipeline migrate` first" in done.stderr


def test_no_database_at_all(tmp_path: Path) -> None:
    done = run_command("consumers", "list", folder=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "has no embedded Postgres" in done.stderr


def test_a_consumer_that_is_far_behind_is_shown_without_counting_it(command: Command, log: psycopg.Connection) -> None:
    command("create", "mailer", "--start", "beginning")
    add_inserts(log, 20)
    log.execute(
        "insert into consumer_records (consumer_id, source_table_oid, record_pk, seq, queued_seq, action)"
        " select id, 1, n::text, n, n, 'insert' from pipeline.consumers, generate_series(1, 150000) n"
    )
    assert as_json(command("show", "mailer", "--json"))["pending"] == 100_000
    assert "100,000 or more" in command("list").stdout
