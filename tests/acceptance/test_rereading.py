"""A lost slot, without starting over: what changed in the gap is found by comparing tables with the log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pipeline import logs
from pipeline.cli import main as cli
from tests.fixtures.server import Serving
from tests.fixtures.slots import drop_slot
from tests.fixtures.waiting import eventually

LONG = 3_000
MAKE = (
    "create table shop (id int primary key, n int, big text)",
    "alter table shop alter big set storage external",
    "create table notes (note text)",
    f"insert into shop select g, 0, repeat('x', {LONG}) from generate_series(1, 50) g",
    "insert into notes select 'note ' || g from generate_series(1, 5) g",
)
IN_THE_GAP = (
    "insert into shop values (51, 1, 'new')",
    "update shop set n = 1 where id = 2",
    f"update shop set big = repeat('y', {LONG}) where id = 3",
    "delete from shop where id = 4",
    "update shop set id = 52 where id = 5",
    "insert into notes values ('new')",
    "delete from notes where note = 'note 1'",
)


@pytest.fixture
def command(
    tmp_path: Path,
    source_dsn: str,
    database_dsn: str,
    slot_name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """`pipeline …` on this test's databases, in this process; returns what it prints."""
    monkeypatch.chdir(tmp_path)
    for module, name in ((cli, "setproctitle"), (logs, "setup")):
        monkeypatch.setattr(module, name, lambda *_: None)
    for name, value in (("source_dsn", source_dsn), ("database_dsn", database_dsn), ("slot", slot_name)):
        monkeypatch.setenv(f"PIPELINE_{name.upper()}", value)

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["pipeline", *arguments])
        assert cli.main() == 0, capsys.readouterr()
        return capsys.readouterr().out

    return run


def complete(log: psycopg.Connection, epoch: int = 0) -> None:
    found = log.execute('select "table", state, reason from pipeline.snapshots').fetchall()
    assert {(name, state) for name, state, _ in found} == {("public.shop", "complete"), ("public.notes", "complete")}, (
        found
    )
    assert log.execute("select min(epoch) from pipeline.snapshot_tables").fetchone() == (epoch,)


def folded(log: psycopg.Connection) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    query = "select action, record_pk, record, changes from sequin_events where source_table_name = 'shop' order by seq"
    for action, pk, record, changes in log.execute(query):
        rows.pop(str((changes or {}).get("id", pk)), None)
        if action != "delete":
            rows[pk] = record
    return rows


def test_a_lost_slot_costs_what_has_changed(
    serve: Callable[..., Serving],
    source: psycopg.Connection,
    log: psycopg.Connection,
    slot_name: str,
    command: Callable[..., str],
) -> None:
    source.execute("drop table t")
    for statement in MAKE:
        source.execute(statement.encode())
    server = serve()
    eventually(lambda: complete(log))
    assert server.stop() == 0
    drop_slot(source, slot_name)
    for statement in IN_THE_GAP:
        source.execute(statement.encode())
    adopted = command("sources", "adopt", "--reread", "--yes")
    assert "so the log will not show which rows were deleted: public.notes" in adopted
    assert "compares all tables with the log" in adopted
    source.execute("update shop set n = 2 where id = 6")
    (before,) = log.execute("select max(seq) from sequin_events").fetchone() or (0,)
    server = serve()
    eventually(lambda: complete(log, 1))

    query = """select action, record_pk, record ->> 'note', metadata -> 'recovered' ->> 'backfill' is not null,
        (metadata -> 'recovered' ->> 'after')::pg_lsn < (metadata -> 'recovered' ->> 'until')::pg_lsn, source_epoch
        from sequin_events where seq > %s and action <> 'message' order by source_table_name, record_pk, seq"""
    found = log.execute(query, [before]).fetchall()
    assert found == [
        ("read", "", "new", False, None, 1),
        ("update", "2", None, True, True, 1),
        ("update", "3", None, True, True, 1),
        ("delete", "4", None, True, True, 1),
        ("delete", "5", None, True, True, 1),
        ("insert", "51", None, True, True, 1),
        ("insert", "52", None, True, True, 1),
        ("update", "6", None, False, None, 1),
        ("update", "6", None, True, True, 1),
    ]
    source.execute("update shop set n = n + 1 where id in (6, 7)")
    rows: dict[str, Any] = dict(source.execute("select id::text, to_jsonb(s) from shop s").fetchall())
    eventually(lambda: folded(log) == rows)
    assert server.stop() == 0
    command("verify")
    assert "nothing was changed; no table will be compared" in command("sources", "adopt", "--reread", "--yes")
