"""Two servers on one pipeline database, and how a server leaves."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import httpx
import psycopg
import pytest

from pipeline.process.child import DRAIN_SECONDS
from tests.fixtures import test_decoding
from tests.fixtures.postgres import Cluster
from tests.fixtures.processes import alive
from tests.fixtures.server import Serving, with_grpc
from tests.fixtures.test_decoding import Change
from tests.fixtures.waiting import eventually

ROWS = 20_000


@pytest.fixture
def serve(serve: Callable[..., Serving]) -> Callable[..., Serving]:
    return with_grpc(serve)


@pytest.fixture
def fresh_dsn(cluster: Cluster) -> Iterator[str]:
    """A pipeline database that was never migrated."""
    with cluster.database("fresh") as dsn:
        yield dsn


def commit(source: psycopg.Connection, *numbers: int) -> None:
    for number in numbers:
        source.execute("insert into t values (%s)", [number])


def committed(log: psycopg.Connection) -> list[str | None]:
    return [change.values["id"] for change in test_decoding.read_events(log) if change.table == "public.t"]


def has_all(log: psycopg.Connection, *numbers: int) -> None:
    assert committed(log) == [str(number) for number in numbers]


def states(*servers: Serving) -> list[int]:
    return [server.get("/readyz").status_code for server in servers]


def test_two_that_boot_together_come_up_and_one_takes_over(
    source_dsn: str, fresh_dsn: str, serve: Callable[..., Serving]
):
    with psycopg.connect(source_dsn, autocommit=True) as source:
        source.execute("create table t (id int primary key)")
        both = [serve(database_dsn=fresh_dsn, wait=False) for _ in range(2)]

        def one_is_ready() -> None:
            assert sorted(states(*both)) == [200, 503]

        eventually(one_is_ready, errors=(AssertionError, httpx.TransportError))
        active, standby = sorted(both, key=lambda server: states(server)[0])

        def says_for_whom() -> None:
            reasons = standby.get("/readyz").json()["reasons"]
            assert any("standing by" in reason and f":{active.process.pid}" in reason for reason in reasons), reasons

        eventually(says_for_whom)
        with psycopg.connect(fresh_dsn, autocommit=True) as log:
            commit(source, 1, 2, 3)
            eventually(lambda: has_all(log, 1, 2, 3))
            active.process.kill()
            commit(source, 4, 5, 6)
            eventually(lambda: has_all(log, 1, 2, 3, 4, 5, 6))
        standby.wait_ready()
        assert standby.process.poll() is None


MOVED = "select commit_lsn from pipeline.shuffle_progress"
LEFT = f"""
    select count(*) from public.wal_events
    where commit_lsn > ({MOVED}) and commit_lsn <= (select commit_lsn from pipeline.replication_progress)
"""
"""Transactions staged completely and not moved. The last one may be the pipeline's own message, without rows."""


def test_sigterm_drains_what_was_staged(source_dsn: str, database_dsn: str, serve: Callable[..., Serving]):
    with psycopg.connect(source_dsn, autocommit=True) as source, psycopg.connect(database_dsn, autocommit=True) as log:
        source.execute("create table t (id int primary key)")
        server = serve()
        for first in range(0, ROWS, ROWS // 10):
            source.execute("insert into t select generate_series(%s::int, %s)", [first + 1, first + ROWS // 10])
        eventually(lambda: last_staged(log) > 0)
        assert server.stop() == 0
        assert log.execute(LEFT).fetchone() == (0,)
        assert (
            log.execute("select max(commit_lsn) from public.sequin_events").fetchone() == log.execute(MOVED).fetchone()
        )
        assert "draining" in server.log()
        serve()
        eventually(lambda: has_all(log, *range(1, ROWS + 1)))


def test_what_is_staged_while_the_shuffler_is_looking_is_drained_too(
    source_dsn: str, database_dsn: str, serve: Callable[..., Serving]
):
    """It had found nothing when it was held up, and is told to stop before it goes on."""
    blocked = "select from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'pipeline shuffle'"
    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(database_dsn, autocommit=True) as log,
        psycopg.connect(database_dsn) as holder,
    ):
        source.execute("create table t (id int primary key)")
        server = serve()
        commit(source, 1)
        eventually(lambda: has_all(log, 1))
        shuffle, replication = server.child_pid("shuffle"), server.child_pid("replication")
        holder.execute("lock table pipeline.consumers in access exclusive mode")
        eventually(lambda: log.execute(blocked).rowcount == 1)
        before = last_staged(log)
        commit(source, 2)
        eventually(lambda: last_staged(log) > before)
        server.process.terminate()
        eventually(lambda: not alive(replication))
        os.kill(shuffle, signal.SIGTERM)  # as the server is about to
        holder.rollback()
        assert server.process.wait(120) == 0
        has_all(log, 1, 2)


def last_staged(log: psycopg.Connection) -> int:
    """The last transaction that was staged whole; 0 before the first."""
    row = log.execute("select coalesce(max(commit_lsn), 0) from pipeline.replication_progress").fetchone()
    return row[0] if row else 0


def test_a_second_interrupt_leaves_at_once(source_dsn: str, database_dsn: str, serve: Callable[..., Serving]):
    with psycopg.connect(source_dsn, autocommit=True) as source, psycopg.connect(database_dsn) as log:
        source.execute("create table t (id int primary key)")
        server = serve()
        # A shuffler that waits for a reader's lock cannot drain.
        log.execute("lock table pipeline.shuffle_progress")
        commit(source, 1)
        children = {role: server.child_pid(role) for role in ("replication", "shuffle", "schedule", "api")}
        interrupted = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        eventually(lambda: "draining" in server.log())
        eventually(lambda: "replication" not in server.children())
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(DRAIN_SECONDS) != 0
        assert time.monotonic() - interrupted < DRAIN_SECONDS, "at once, and not because its time was over"
        assert not any(alive(pid) for pid in children.values())
        assert server.children() == {}
        log.rollback()
        serve()
        eventually(lambda: has_all(log, 1))
        assert [Change("public.t", "insert", "1", {"id": "1"})] == list(test_decoding.read_events(log))
