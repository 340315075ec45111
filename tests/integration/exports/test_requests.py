"""Exports over HTTP: shown, and asked for; the schedule role answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pipeline.api import database
from pipeline.config.settings import load
from pipeline.exports import endpoints, ledger, requests
from pipeline.postgres import role_locks
from pipeline.server import schedule
from tests.fixtures.api import Api
from tests.fixtures.small_log import small_log
from tests.fixtures.waiting import PATIENCE, eventually


class Stop(threading.Event):
    """The signal by which the role is told to stop."""

    __bool__ = threading.Event.is_set


Log = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def log(database_dsn: str) -> Iterator[Log]:
    with small_log(database_dsn, 5) as connection:
        yield connection


@pytest.fixture
def served(api: Callable[..., Api], log: Log, tmp_path: Path) -> Api:
    return api(data_dir=tmp_path / "data")


@contextmanager
def held(dsn: str) -> Iterator[Log]:
    """A session that holds the schedule role."""
    with psycopg.connect(dsn, autocommit=True) as holder:
        assert role_locks.try_acquire(holder, "schedule")
        role_locks.report(holder, "schedule", "test:1", 1, "running")
        yield holder


def test_a_request_is_kept_for_a_minute(
    served: Api, log: Log, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "ASKED_SECONDS", 0.05)
    away = served.post("/v1/exports/run")
    assert (away.status_code, "no server runs the schedule role" in away.json()["title"]) == (503, True)
    with held(database_dsn) as role:
        first = served.post("/v1/exports/run")
        assert (first.status_code, first.json()) == (202, {"request": 1})
        again = served.post("/v1/exports/run")
        assert (again.status_code, again.json()["title"]) == (409, "another client has just asked for an export")
        log.execute("update pipeline.export_requests set requested_at = requested_at - interval '61 s'")
        assert not requests.answer(role, None), "it is dropped"
        assert served.post("/v1/exports/run").json() == {"request": 2}
        assert requests.answer(role, None)
        assert not requests.answer(role, None)
        assert requests.find_answer(role, 2) == (True, None)


def test_a_role_without_exports_and_a_running_export_refuse(
    served: Api, log: Log, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "ASKED_SECONDS", PATIENCE)
    monkeypatch.setattr(database, "SESSION_SECONDS", PATIENCE)
    with held(database_dsn) as role:
        refusing = threading.Thread(target=lambda: eventually(lambda: requests.answer(role, "exports are off")))
        refusing.start()
        answer = served.post("/v1/exports/run")
        refusing.join()
        assert (answer.status_code, answer.json()["title"]) == (409, "no export begins: exports are off")
        ledger.begin_run(log, "command")
        running = served.post("/v1/exports/run")
        assert (running.status_code, "an export is running already" in running.json()["title"]) == (409, True)
    shown = served.get("/v1/exports").json()
    assert (shown["status"]["schedule"], shown["runs"][0]["state"], shown["ranges"]) == ("*/5 * * * *", "running", [])


@pytest.mark.long
def test_the_schedule_role_exports_when_asked(served: Api, log: Log, database_dsn: str, tmp_path: Path) -> None:
    config = load(data_dir=tmp_path / "data", database_dsn=database_dsn, source_dsn="host=/nowhere")
    stop = Stop()
    with held(database_dsn) as role:
        work = threading.Thread(target=schedule.run, args=(config, role, stop, lambda _: None))
        work.start()
        try:
            assert served.post("/v1/exports/run").status_code == 202
            eventually(lambda: [each.state for each in ledger.runs(log, 1)] == ["done"])
        finally:
            stop.set()
            work.join(PATIENCE)
    shown = served.get("/v1/exports").json()
    assert (shown["runs"][0]["trigger"], shown["ranges"][0]["rows"]) == ("schedule", 5)
