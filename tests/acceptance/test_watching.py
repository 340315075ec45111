"""`pipeline status --watch`: as a script reads it, as it stands on a terminal, and what a lost database does to it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.fixtures.postgres import Cluster, free_port
from tests.fixtures.server import COMMAND, environment, run_command
from tests.fixtures.waiting import eventually

UNREACHABLE = "host=127.0.0.1 dbname=missing"
Running = subprocess.Popen[str]
WATCH = ("status", "--watch", "--interval", "0.1")


@contextmanager
def watching(
    folder: Path, *arguments: str, output: int = subprocess.PIPE, dsn: str = "", by: int = signal.SIGINT
) -> Iterator[Running]:
    """A `status --watch` that is ended by Ctrl-C or another signal, as 130 and without a word."""
    dsn = dsn or f"{UNREACHABLE} port={free_port()}"
    process = subprocess.Popen(
        [*COMMAND, *WATCH, *arguments],
        cwd=folder,
        env={**environment({"source_dsn": dsn, "database_dsn": dsn}), "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
        process.send_signal(by)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert process.stderr.read().strip() == ""
    finally:
        process.kill()
        process.communicate()


def test_a_database_that_goes_away_is_a_line_and_then_it_goes_on(tmp_path: Path, cluster: Cluster) -> None:
    with (
        cluster.database("watched", cluster.template) as dsn,
        watching(tmp_path, "--json", dsn=dsn) as process,
        psycopg.connect(cluster.dsn("postgres"), autocommit=True) as conn,
    ):
        look = reasons(process)
        assert look() == "replication has never run"
        name = str(conninfo_to_dict(dsn)["dbname"])
        allow = sql.SQL("alter database {} allow_connections {}")
        conn.execute(allow.format(sql.Identifier(name), sql.SQL("false")))
        assert "is not currently accepting connections" in eventually(lambda: said_of(look(), "accepting"))
        conn.execute(allow.format(sql.Identifier(name), sql.SQL("true")))
        assert eventually(lambda: said_of(look(), "never run"))


def reasons(process: Running) -> Callable[[], str]:
    """Reads the next look, and says why it is not replicating."""

    def look() -> str:
        assert process.stdout is not None
        return str(json.loads(process.stdout.readline())["reasons"][0])

    return look


def said_of(reason: str, word: str) -> str:
    return reason if word in reason else ""


def test_looks_follow_each_other_in_a_pipe(tmp_path: Path) -> None:
    with watching(tmp_path) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(10)]
    assert [line[:15] for line in lines[2:5]] == ["not replicating", "  pipeline data", "\n"]
    assert lines[0].endswith(" UTC, every 0.1 s until Ctrl-C\n")
    assert lines[7:10] == lines[2:5]


@pytest.mark.parametrize("by", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_terminal_is_drawn_in_place(by: int, tmp_path: Path) -> None:
    keyboard, terminal = pty.openpty()
    try:
        with watching(tmp_path, output=terminal, by=by):
            shown = ""
            while shown.count("not replicating") < 3:
                shown += os.read(keyboard, 4096).decode()
        while "\x1b[?25h" not in shown:  # the looks that were drawn meanwhile come first, in pieces
            shown += os.read(keyboard, 4096).decode()
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert "\x1b[1A\x1b[2K" in shown  # a line up, and cleared
    assert shown.rindex("\x1b[?25h") > shown.rindex("not replicating")  # the cursor is there again


def test_an_interval_is_one_of_watching(tmp_path: Path) -> None:
    done = run_command("status", "--interval", "5", folder=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "pipeline: --interval is the time between two updates of --watch; add --watch\n",
    )
