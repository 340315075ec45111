"""A frozen holder, not a dead one: another server continues meanwhile, and a zombie that wakes writes nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pipeline.postgres import role_locks
from pipeline.process import child
from pipeline.server import leadership
from pipeline.server.runners import STANDBY_SECONDS
from tests.fixtures import test_decoding
from tests.fixtures.command_server import FROZEN_SECONDS
from tests.fixtures.server import Serving, with_grpc
from tests.fixtures.waiting import eventually

WAITING = """
    select from pg_locks join pg_database d on d.oid = database where not granted and datname = current_database()
"""
PROMISED = 15
"""Seconds; how long a start takes beside the waiting is the machine's business."""


@pytest.fixture
def serve(serve: Callable[..., Serving]) -> Callable[..., Serving]:
    return with_grpc(serve)


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def committed(log: psycopg.Connection) -> list[int]:
    rows = log.execute("select (record ->> 'id')::int from public.sequin_events where action = 'insert' order by seq")
    return [row[0] for row in rows]


def arrive(source: psycopg.Connection, log: psycopg.Connection, *numbers: int) -> None:
    for number in numbers:
        source.execute("insert into t values (%s)", [number])

    def all_there() -> None:
        assert committed(log) == list(range(1, numbers[-1] + 1))

    eventually(all_there)


def test_a_standby_takes_over_within_the_promised_time():
    other_server = role_locks.FROZEN_SECONDS + leadership.ASK_SECONDS + STANDBY_SECONDS
    same_server = child.FROZEN_SECONDS + child.POLL
    assert max(other_server, same_server) < PROMISED


def test_a_standby_takes_over_from_a_frozen_server(
    source: psycopg.Connection, log: psycopg.Connection, serve: Callable[..., Serving]
):
    active = serve()
    arrive(source, log, 1, 2)
    standby = serve(wait=False)
    eventually(lambda: "standing by" in standby.log())
    with frozen(active.process.pid, *active.children().values()):
        arrive(source, log, 3, 4)
        standby.wait_ready()
    arrive(source, log, 5, 6)
    eventually(lambda: active.get("/readyz").status_code == 503)
    arrive(source, log, 7)
    assert active.process.poll() is None
    assert test_decoding.transaction_sizes(log) == [1] * 7
    standby.stop()
    active.wait_ready()
    arrive(source, log, 8)


def test_frozen_roles_are_killed_and_started_again(
    source: psycopg.Connection, log: psycopg.Connection, serve: Callable[..., Serving], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(FROZEN_SECONDS, "4")
    server = serve()
    arrive(source, log, 1, 2)
    for role in ("replication", "shuffle"):
        os.kill(server.child_pid(role), signal.SIGSTOP)
    arrive(source, log, 3, 4)
    # What is written at once does not wait for the shuffler.
    eventually(lambda: all(f"{role} is frozen; killed" in server.log() for role in ("replication", "shuffle")))


def test_a_shuffler_frozen_at_its_start_blocks_no_other_server(
    source: psycopg.Connection, log: psycopg.Connection, serve: Callable[..., Serving]
):
    with log.transaction():  # it waits in the middle of the transaction that records what it writes
        log.execute("lock table pipeline.events_tables in exclusive mode")
        first = serve(wait=False)
        eventually(lambda: log.execute(WAITING).rowcount > 0)
        pids = first.process.pid, *first.children().values()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    try:
        second = serve(wait=False)
        eventually(lambda: "serve.serving" in second.log())
        arrive(source, log, 1, 2)
        assert second.process.poll() is None
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
