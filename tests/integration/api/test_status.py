"""/v1/status and the lists of the console: each read once for all who ask, over connections that are kept."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any

import psycopg
import pytest

from pipeline.api import shared_reads
from pipeline.capture.source import slots
from pipeline.operate import captured_tables
from pipeline.operate.status import PipelineStatus
from pipeline.operate.status_reader import StatusReader
from pipeline.postgres import kept_connection
from pipeline.version import installed_version
from tests.fixtures.api import Api
from tests.fixtures.small_log import add_inserts
from tests.fixtures.waiting import eventually

SOURCE = uuid.UUID(int=1)
SESSIONS = "select count(*) from pg_stat_activity where application_name = 'pipeline api reads' and datname = %s"
SAMPLES = """
    insert into pipeline.lag_samples
    select now() - at * interval '1 s', source, 0, staged, shuffled, changes, events
    from (values (100, 1000, 1000, 1000, 10, 10), (90, 2000, 1800, 1500, 30, 20), (80, null, 1800, null, 30, 20),
        (10, 100, 90, 90, 40, 30), (1, 100, 90, 90, 40, 30)) as s (at, source, staged, shuffled, changes, events)
"""
EPOCHS = """
    insert into pipeline.epochs (source_id, epoch, system_identifier, from_lsn, reason, started_at)
    values (%(source)s, 0, '1', 0, 'first', now() - interval '1 h'),
        (%(source)s, 1, '1', 0, 'adopted', now() - interval '20 s')
"""
WRITTEN = """
    insert into pipeline.wal_written (source_id, epoch, lsn, written_at)
    values (%(source)s, 0, 1400, now() - interval '95 s'), (%(source)s, 0, 1600, now() - interval '93 s'),
        (%(source)s, 1, 95, now() - interval '19 s')
"""

IDLE = f"""
    insert into pipeline.replication_progress (source_id, epoch, position, commit_lsn) values ('{SOURCE}', 0, 150, 100);
    insert into pipeline.shuffle_progress (source_id, epoch, commit_lsn, committed_at)
    values ('{SOURCE}', 0, 100, now() - interval '1 h');
    insert into pipeline.wal_written (source_id, epoch, lsn, written_at)
    values ('{SOURCE}', 0, 90, now() - interval '2 h'), ('{SOURCE}', 0, 150, now() - interval '7 min'),
        ('{SOURCE}', 0, 151, now() - interval '1 min')
"""


@pytest.fixture
def log(database_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        connection.execute(
            "insert into pipeline.sources (id, system_identifier, database_name, slot) values (%s, '1', 'shop', 's')",
            [SOURCE],
        )
        yield connection


@pytest.fixture
def served(api: Callable[..., Api], source_dsn: str, log: psycopg.Connection[Any]) -> Api:
    return api(source_dsn=source_dsn)


def sessions(log: psycopg.Connection[Any]) -> int:
    (found,) = log.execute(SESSIONS, [log.info.dbname]).fetchone() or (0,)
    return int(found)


def test_all_who_ask_share_one_reading_of_the_status(
    served: Api, log: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: list[object] = []
    read = StatusReader.read

    def counted(reader: StatusReader, *arguments: Any) -> PipelineStatus:
        readings.append(reader)
        return read(reader, *arguments)

    monkeypatch.setattr(StatusReader, "read", counted)
    monkeypatch.setattr(shared_reads, "SHARED_SECONDS", 3600)
    monkeypatch.setattr("pipeline.operate.status_reader.SHARED_SECONDS", 3600)
    with ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(lambda _: served.get("/v1/status").text, range(8)))
    assert len(set(answers)) == 1
    assert served.get("/metrics").status_code == 200
    assert served.get("/v1/tables").json() == {"data": []}
    assert len(readings) == 1
    assert sessions(log) == 1
    found = json.loads(answers[0])
    names = {each.name for each in fields(PipelineStatus)} - {"progress"}
    assert names <= found.keys()
    assert (found["replicating"], found["reasons"][0]) == (False, "replication has never run")
    assert found["version"] == installed_version()
    assert found["source_version"] and found["source_version"] == found["pipeline_version"]


def test_lists_are_shared_until_a_client_changes_something(
    served: Api, log: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_reads, "SHARED_SECONDS", 3600)
    assert served.get("/v1/consumers").json() == {"data": []}
    log.execute("select pipeline.create_consumer('unseen')")
    assert served.get("/v1/consumers").json() == {"data": []}
    assert served.post("/v1/consumers", name="made").status_code == 201
    found = served.get("/v1/consumers").json()["data"]
    assert found == [served.get(f"/v1/consumers/{name}").json() for name in ("made", "unseen")]


def test_connections_close_when_no_client_asks(
    served: Api, log: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_connection, "KEPT_SECONDS", 0.1)
    assert served.get("/v1/sources").json()["data"][0]["id"] == str(SOURCE)
    eventually(lambda: sessions(log) == 0)
    assert served.get("/v1/routes").status_code == 200


def test_a_connection_that_the_database_ended_is_replaced(served: Api, log: psycopg.Connection[Any]) -> None:
    assert served.get("/v1/sources").status_code == 200
    log.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pipeline api reads'")
    assert served.get("/v1/routes").status_code == 200


def test_the_lag_of_an_hour(served: Api, log: psycopg.Connection[Any]) -> None:
    with log.transaction():  # so that now() is the same for all
        for statement in (EPOCHS, SAMPLES, WRITTEN):
            log.execute(statement, {"source": SOURCE} if "source)s" in statement else None)
    found = served.get("/v1/lag").json()["data"]
    names = ("epoch", "behind_bytes", "changes_per_second", "events_per_second")
    assert [tuple(each[name] for name in names) for each in found] == [
        (0, 0, None, None),
        (0, 500, 2.0, 1.0),
        (0, None, 0.0, 0.0),
        (1, 10, None, None),
        (1, 10, 0.0, 0.0),
    ]
    seconds = [each["behind_seconds"] for each in found]
    assert (seconds[0], seconds[2], seconds[3]) == (0.0, None, 0.0)  # an idle worker confirms its position every 10 s
    assert seconds[1] == pytest.approx(3, abs=1) and seconds[4] == pytest.approx(18, abs=1)


def test_tables_and_slots(served: Api, log: psycopg.Connection[Any], source_dsn: str, slot_name: str) -> None:
    log.execute(
        "insert into pipeline.snapshot_tables (source_id, epoch, table_oid, table_schema, table_name, keyed)"
        " values (%s, 0, 1, 'public', 'b', true), (%s, 0, 2, 'public', 'a', true)",
        [SOURCE, SOURCE],
    )
    tables = served.get("/v1/tables").json()["data"]
    assert [(each["table"], each["state"], each["not_captured"]) for each in tables] == [
        ("public.a", "not read", None),
        ("public.b", "not read", None),
    ]
    assert tables[0].keys() == {each.name for each in fields(captured_tables.SourceTable)}
    with psycopg.connect(source_dsn, autocommit=True) as source:
        slots.create(source, slot_name)
        listed = {each["name"]: each for each in served.get("/v1/slots").json()["data"]}
        assert listed[slot_name]["whose"] == "other"


def test_a_source_that_is_away_is_a_reason_and_no_list(api: Callable[..., Api], log: psycopg.Connection[Any]) -> None:
    served = api()
    assert "/nowhere" in served.get("/v1/status").json()["reasons"][-1]
    answer = served.get("/v1/slots")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert served.get("/v1/lag").json() == {"data": []}


def test_lag_begins_when_the_log_was_last_complete(api: Callable[..., Api], log: psycopg.Connection[Any]) -> None:
    """While the source does not answer. The last commit is an hour old, but nothing was late 7 minutes ago."""
    log.execute(IDLE)
    assert api().get("/v1/status").json()["lag_seconds"] == pytest.approx(7 * 60, abs=50)


def test_lag_begins_at_the_last_commit_if_staged_changes_wait(
    api: Callable[..., Api], log: psycopg.Connection[Any]
) -> None:
    log.execute(IDLE)
    log.execute("update pipeline.replication_progress set commit_lsn = 140")
    assert api().get("/v1/status").json()["lag_seconds"] == pytest.approx(60 * 60, abs=50)


def test_metrics_show_how_long_commits_take(served: Api, log: psycopg.Connection[Any]) -> None:
    assert "pipeline_commit_to_inserted_seconds" not in served.get("/metrics").text
    add_inserts(log, 100)
    log.execute("update sequin_events set inserted_at = committed_at + (seq - 2) * interval '1 ms'")

    def as_metrics() -> None:
        lines = served.get("/metrics").text.splitlines()
        assert 'pipeline_commit_to_inserted_seconds{quantile="0.5"} 0.048' in lines
        assert 'pipeline_commit_to_inserted_seconds{quantile="0.99"} 0.097' in lines

    eventually(as_metrics)
