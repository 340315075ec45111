"""Health and metrics answer within seconds whatever hangs, and agree with each other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from pipeline.operate import readiness
from pipeline.postgres import role_locks
from pipeline.version import installed_version
from tests.fixtures.api import Api, answering
from tests.fixtures.waiting import eventually

ROLES = ("replication", "shuffle")


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and says nothing, as a frozen one does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"host=127.0.0.1 port={listener.getsockname()[1]} dbname=x user=x sslmode=disable gssencmode=disable"


@contextmanager
def running(dsn: str, server: str) -> Iterator[None]:
    """Both roles that write the log are held and running, by this server."""
    with psycopg.connect(dsn, autocommit=True) as holder:
        for role in ROLES:
            assert role_locks.try_acquire(holder, role)
            role_locks.report(holder, role, server, 1, "running")
        yield


def ready(api: Api) -> tuple[int, float]:
    """What /readyz answers, and pipeline_ready."""
    status = api.get("/readyz").status_code
    return status, metrics(api).get("pipeline_ready", -1.0)


def metrics(api: Api) -> dict[str, float]:
    """What /metrics answers, by name with labels."""
    lines = [line.rsplit(" ", 1) for line in api.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def test_a_source_that_is_frozen(database_dsn: str, source_dsn: str, silent: str) -> None:
    with answering(database_dsn, source_dsn=source_dsn) as api, running(database_dsn, "test:1"):
        eventually(lambda: ready(api) == (200, 1.0))  # a look has two seconds
        found = metrics(api)
        assert (found['pipeline_up{database="source"}'], found["pipeline_leader"]) == (1.0, 1.0)
    with answering(database_dsn, source_dsn=silent) as api, running(database_dsn, "test:1"):
        eventually(lambda: ready(api) == (503, 0.0))
        found = metrics(api)
        assert (found['pipeline_up{database="source"}'], found['pipeline_up{database="pipeline"}']) == (0.0, 1.0)
        eventually(lambda: any("source" in reason for reason in api.get("/readyz").json()["reasons"]))


def test_clients_of_readyz_share_one_look(database_dsn: str, source_dsn: str) -> None:
    asked = "select count(*) from pg_stat_activity where application_name = 'pipeline readiness'"
    most = 0
    with answering(database_dsn, source_dsn=source_dsn) as api, psycopg.connect(database_dsn, autocommit=True) as watch:
        api.get("/metrics")
        threads = workers()
        with ThreadPoolExecutor(32) as clients:
            answers = [clients.submit(api.get, "/readyz") for _ in range(128)]
            while not all(answer.done() for answer in answers):
                (sessions,) = watch.execute(asked).fetchone() or (0,)
                most = max(most, sessions)
        assert {answer.result().status_code for answer in answers} == {503}
        assert most <= 1
        assert workers() == threads, "those of /metrics"


def workers() -> int:
    """How many threads answer endpoints in this process."""
    return sum("AnyIO" in thread.name for thread in threading.enumerate())


def test_a_standby(database_dsn: str, source_dsn: str) -> None:
    with answering(database_dsn, source_dsn=source_dsn) as api, running(database_dsn, "elsewhere:1"):
        eventually(lambda: ready(api) == (503, 0.0))
        roles = ("api", "replication", "shuffle", "schedule")

        def by_role() -> None:
            assert [api.get("/readyz", role=role).status_code for role in roles] == [200, 200, 200, 503]

        eventually(by_role)
        assert metrics(api)["pipeline_leader"] == 0.0
        assert api.get("/readyz", role="writer").status_code == 422
        assert api.get("/healthz").status_code == 200


def test_a_pipeline_database_that_is_frozen(source_dsn: str, silent: str) -> None:
    assert 2 * readiness.CHECK_SECONDS < 5  # connecting, then asking
    with answering(silent, source_dsn=source_dsn) as api:
        assert [api.get(path).status_code for path in ("/metrics", "/healthz")] == [200, 200]
        known = {'pipeline_up{database="pipeline"}': 0.0, "pipeline_ready": 0.0}
        known[f'pipeline_build_info{{version="{installed_version()}"}}'] = 1.0
        eventually(lambda: metrics(api) == known)
