"""The commands of docs/quickstart.md, one after the other: they work as they stand there, and print what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from pipeline.postgres.embedded import wheel_bin_dir
from tests.fixtures.postgres import MAJORS, Cluster, free_port, temporary_server
from tests.fixtures.server import ROOT, Serving, run_at_terminal
from tests.fixtures.waiting import eventually

PAGE = (ROOT / "docs" / "quickstart.md").read_text()
SKIPPED = ("pip install", r"psql -d shop -c '\password")
"""What a test has done already, and what asks at a terminal: the test's Postgres lets everybody in."""
SHOP = """
create table orders (id int generated always as identity primary key, total numeric(10, 2), paid bool default false);
create table notes (text text);
"""
NEWEST = MAJORS[0]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command without its comment, and the lines that the page shows below it."""
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        for shown in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = shown.rstrip().split("\n")
            yield re.sub(r"\s+# .*", "", command), lines


class Shell:
    """A terminal in an empty folder, where `db` is this machine. `set`: what exports a variable."""

    def __init__(self, folder: Path, set_variable: Callable[[str, str], None]) -> None:
        self._folder, self._set = folder, set_variable
        self.server: Serving | None = None

    def run(self, line: str) -> str:
        """What the command prints, which must end well; a server is ready, and goes on."""
        command, _, file = line.replace("@db/", "@127.0.0.1/").partition(" > ")
        program, *arguments = shlex.split(command)
        if program == "export":
            for each in arguments:
                self._set(*each.split("=", 1))
        elif arguments == ["serve"]:
            self.server = Serving(self._folder, {"http_port": free_port()}, ("serve",))
            self.server.wait_ready()
        else:
            typed = arguments[2] if arguments[:2] == ["slots", "delete"] else ""  # it asks for the name
            done = (
                run_at_terminal(typed, *arguments, folder=self._folder)
                if program == "pipeline"
                else self._bash(command)
            )
            assert done.returncode == 0, done
            if file:
                (self._folder / file).write_text(done.stdout)
            return done.stdout
        return ""

    def _bash(self, line: str) -> subprocess.CompletedProcess[str]:
        path = f"{wheel_bin_dir(NEWEST)}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self._folder,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def server() -> Iterator[Cluster]:
    """Its own Postgres: the page names roles and databases."""
    with temporary_server(NEWEST) as cluster:
        with cluster.connect() as administrator:
            administrator.execute("create role me superuser login")
            administrator.execute("create database shop owner me")
        with cluster.connect("shop") as shop:
            shop.execute("set session authorization me")
            shop.execute(SHOP)
        yield cluster


@pytest.fixture
def shell(server: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    asked = conninfo_to_dict(server.tcp_dsn("shop"))
    for name in ("host", "port"):
        monkeypatch.setenv(f"PG{name.upper()}", str(asked[name]))
    monkeypatch.setenv("PGUSER", "me")
    shell = Shell(tmp_path, monkeypatch.setenv)
    yield shell
    if shell.server is not None:
        shell.server.close()
        print(shell.server.log())


def without_spaces(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.replace("127.0.0.1", "db").splitlines()]


def test_each_command_works_as_it_stands_on_the_page(shell: Shell, server: Cluster) -> None:
    before = state(server)
    for command, lines in commands():
        if command.startswith(SKIPPED):
            continue
        if "slots delete" in command:  # "stop the server"
            assert shell.server is not None and shell.server.stop() == 0
        expected = [line for line in without_spaces("\n".join(lines)) if line != "…"]
        if "from sequin_events" in command:  # the log has them a moment later
            eventually(partial(prints, shell, command, expected))
        else:
            prints(shell, command, expected)
    assert shell.server is not None
    assert state(server) == before


def prints(shell: Shell, command: str, expected: list[str]) -> None:
    printed = without_spaces(shell.run(command))
    assert [line for line in expected if line not in printed] == [], (command, printed)


def state(server: Cluster) -> list[str]:
    """Everything of the cluster that the page makes."""
    query = """
        select rolname from pg_roles union all select datname from pg_database
        union all select slot_name from pg_replication_slots union all select pubname from pg_publication order by 1
    """
    with server.connect("shop") as connection:
        return [name for (name,) in connection.execute(query).fetchall()]
