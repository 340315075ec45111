"""The process that forks the roles: what it has imported is not imported again, and its own end costs nothing."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.fixtures.command_server import FROZEN_SECONDS, SUBREAPER
from tests.fixtures.processes import alive, children
from tests.fixtures.server import Serving, with_grpc
from tests.fixtures.waiting import eventually

GONE_WITHIN = 20.0
"""Seconds after its supervisor's end: a quarter of that, where the machine has one."""
ROLES = {"snapshot", "replication", "shuffle", "schedule", "followers", "api", "grpc"}


@pytest.fixture
def serve(serve: Callable[..., Serving]) -> Callable[..., Serving]:
    return with_grpc(serve)


def arrive(source: psycopg.Connection, log: psycopg.Connection, *numbers: int) -> None:
    for number in numbers:
        source.execute("insert into t values (%s)", [number])

    def once_in_order() -> None:
        rows = log.execute("select (record ->> 'id')::int from public.sequin_events order by seq").fetchall()
        assert [row[0] for row in rows] == list(range(1, numbers[-1] + 1))

    eventually(once_in_order)


def all_of_them(server: Serving) -> dict[str, int]:
    """Role to pid, once each runs: some come a moment after it is ready."""

    def found() -> dict[str, int]:
        now = server.children()
        assert set(now) == ROLES | {"fork server"}
        return now

    return eventually(found)


def said_by_a_library(server: Serving, pid: int) -> None:
    """Whatever is written to its standard error is a record of the log."""
    Path(f"/proc/{pid}/fd/2").write_text("E0000 tcp_server.cc:1] File descriptor limit reached\n")

    def logged() -> None:
        records = [json.loads(line) for line in server.log().split("\n")[:-1]]
        found = [each["message"] for each in records if each["action"] == "serve.stderr"]
        assert found == ["E0000 tcp_server.cc:1] File descriptor limit reached"]

    eventually(logged)


def states(server: Serving) -> list[str]:
    """Of the children of its supervisor, those that it has inherited, too."""
    return [child.status() for child in psutil.Process(server.process.pid).children()]


def one_holder_each(server: Serving, log: psycopg.Connection) -> None:
    """Who says that it holds a role, and who has a session for it, is the one process that the server has for it."""
    now = server.children()
    sessions = log.execute(
        "select application_name, count(distinct pid) from pg_stat_activity join pg_locks using (pid)"
        " where locktype = 'advisory' and granted and application_name = any (%s) and datname = current_database()"
        " group by 1",
        [[f"pipeline {role}" for role in ROLES]],
    ).fetchall()
    assert all(count == 1 for _, count in sessions), sessions
    rows = log.execute("select role, pid from pipeline.roles where state = 'running' and role <> 'serve'").fetchall()
    assert dict(rows) == {role: now[role] for role in ROLES - {"api"}}


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGKILL, id="killed", marks=pytest.mark.long), pytest.param(signal.SIGSTOP, id="frozen")],
)
def test_roles_end_with_their_fork_server_and_the_next_forks_them_again(
    number: int,
    source: psycopg.Connection,
    log: psycopg.Connection,
    serve: Callable[..., Serving],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv(SUBREAPER, "yes")
    monkeypatch.setenv(FROZEN_SECONDS, "4")
    server = serve()
    arrive(source, log, 1, 2)
    first = all_of_them(server)
    os.kill(first["fork server"], number)
    arrive(source, log, 3, 4)
    eventually(lambda: not any(alive(pid) for pid in first.values()))
    all_of_them(server)
    server.wait_ready()
    arrive(source, log, 5, 6)
    eventually(lambda: one_holder_each(server, log))
    assert "fork server was killed by signal 9; starts again" in server.log()
    eventually(lambda: [status for status in states(server) if status == psutil.STATUS_ZOMBIE] == [])
    assert server.stop() == 0


def test_a_role_comes_back_as_a_fork_and_ctrl_c_drains(
    source: psycopg.Connection, log: psycopg.Connection, serve: Callable[..., Serving]
):
    server = serve()
    arrive(source, log, 1)
    first = all_of_them(server)
    said_by_a_library(server, first["grpc"])
    os.kill(first["replication"], signal.SIGKILL)
    arrive(source, log, 2)
    again = server.child_pid("replication")
    assert again != first["replication"]
    assert again in children(first["fork server"])
    assert mapped(again) == mapped(first["fork server"]), "the same libraries at the same addresses"
    assert "replication was killed by signal 9; starts again" in server.log()
    assert all_of_them(server) == {**first, "replication": again}
    drains(server, signal.SIGINT)


def mapped(pid: int) -> set[str]:
    """Where this process has Python and the driver: a program that is started has them elsewhere each time."""
    maps = psutil.Process(pid).memory_maps(grouped=False)
    return {each.addr for each in maps if re.search(r"/(python3|psycopg_binary|pydantic_core)[^ ]*$", each.path)}


def test_what_forks_has_one_thread_and_no_connections_and_drains(serve: Callable[..., Serving]):
    """Whatever the roles have imported; it ends when a service manager ends every process."""
    server = serve()
    fork_server = all_of_them(server)["fork server"]
    seen = psutil.Process(fork_server)
    assert seen.num_threads() == 1
    assert len(seen.net_connections("all")) == 3 + len(ROLES), "its line and each role's, and the pair that wakes it"
    drains(server, signal.SIGTERM)
    assert not alive(fork_server)


def test_nothing_is_left_of_a_server_that_is_killed(serve: Callable[..., Serving]):
    server = serve()
    pids = server.children()
    server.process.kill()
    eventually(lambda: not any(map(alive, pids.values())), GONE_WITHIN)
    assert "Traceback" not in server.log()


def drains(server: Serving, number: int) -> None:
    """When every process of the group gets this signal, as of Ctrl-C in a terminal or of a service manager."""
    pids, before = server.children(), len(server.log())
    os.killpg(server.process.pid, number)
    assert server.process.wait(120) == 0
    assert not any(alive(pid) for pid in pids.values())
    assert "killed" not in server.log()[before:]
    assert "Traceback" not in server.log()
