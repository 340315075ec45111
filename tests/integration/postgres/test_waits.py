"""What our sessions wait for is named, and at a stop the waiting ones end; a process that was killed leaves none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest
from psycopg import pq

from pipeline.postgres import connections, waits
from pipeline.postgres.connections import Connection
from tests.fixtures.waiting import eventually

WAITING = "lock table public.t in access exclusive mode"
WORKING = "select pg_sleep(60)"


@pytest.fixture
def other(source_dsn: str) -> Iterator[Connection]:
    """A session of another program that holds a lock on the table t."""
    with psycopg.connect(source_dsn, application_name="migration") as connection:
        connection.execute("create table t (id int)")
        connection.commit()
        connection.execute("select from t")
        yield connection


@contextmanager
def running(dsn: str, statement: str) -> Iterator[Connection]:
    """A pipeline session that runs this statement until it ends, or the block does."""

    def run() -> None:
        with suppress(psycopg.Error):
            connection.execute(statement.encode())

    with connections.connect(dsn, "source", name="pipeline test") as connection:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        eventually(lambda: connection.info.transaction_status == pq.TransactionStatus.ACTIVE)
        try:
            yield connection
        finally:
            connections.hang_up(connection)
            thread.join()


def found(connection: Connection, waiting: Connection) -> str:
    """What a session waits for, as people read it, once it waits."""
    return waits.describe(eventually(lambda: waits.find_waits(connection, [waiting.info.backend_pid])))


def test_the_holder_of_a_lock_is_named(other: Connection, source_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "REPORTED_AFTER", 0.1)
    said: list[str] = []
    with psycopg.connect(source_dsn, autocommit=True) as look, running(source_dsn, f"begin; {WAITING}") as waiting:
        assert f"for a lock on t, held by pid {other.info.backend_pid} (postgres, migration, idle" in found(
            look, waiting
        )
        with waits.report_waits(lambda program: f"{program} of the test", said.append):
            eventually(lambda: said)
    assert said[0].startswith("pipeline test of the test has waited ")


def test_a_prepared_transaction_is_named(other: Connection, source_dsn: str) -> None:
    other.execute("prepare transaction 'forgotten'")
    with psycopg.connect(source_dsn, autocommit=True) as look:
        try:
            with running(source_dsn, f"begin; {WAITING}") as waiting:
                assert 'held by the prepared transaction "forgotten" (of postgres, open for 0:' in found(look, waiting)
        finally:
            look.execute("rollback prepared 'forgotten'")


def test_a_stop_ends_waiting_sessions_and_others_end_with_their_process(other: Connection, source_dsn: str) -> None:
    with running(source_dsn, f"begin; {WAITING}") as waiting, running(source_dsn, WORKING) as working:
        pids = [waiting.info.backend_pid, working.info.backend_pid]
        assert eventually(lambda: [pid for rows in waits._ask_databases(waits._end) for pid, _ in rows]) == pids[:1]
        eventually(lambda: waiting.broken)
        assert not working.broken
    other.rollback()
    other.autocommit = True
    # A process that is killed closes its sockets, as this session did; its statement would have gone on for a minute.
    eventually(lambda: other.execute("select from pg_stat_activity where pid = %s", pids[1:]).fetchone() is None)
