"""A reader that holds a partition delays its drop and nothing else, on each version of Postgres."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from pipeline.log.partitions import attached
from pipeline.log.retention import drop_partition
from pipeline.operate import retention
from tests.fixtures.aging_log import KEEP, PARTITION, AgingLog, aging_log
from tests.fixtures.postgres import Cluster
from tests.fixtures.waiting import PATIENCE, eventually

OLD = 1.1 * KEEP
IMPATIENT = "-c statement_timeout=30s -c lock_timeout=500ms"
"""Let every session fail that must wait for a lock."""


@pytest.fixture(scope="module")
def database_cluster(any_cluster: Cluster) -> Cluster:
    return any_cluster


@pytest.fixture
def aged_log(database_dsn: str) -> Iterator[AgingLog]:
    with aging_log(database_dsn) as made:
        made.add(3 * PARTITION + 10, OLD)
        yield made


@pytest.fixture
def reader(database_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_dsn, application_name="long report") as connection:
        yield connection


def read_all(dsn: str) -> int:
    """What a new reader sees, who does not wait."""
    with psycopg.connect(dsn, options=IMPATIENT) as connection:
        row = connection.execute("select count(*) from public.sequin_events").fetchone()
        assert row
        return int(row[0])


def write_on(dsn: str) -> None:
    """What the shuffler does meanwhile: events in new partitions, with room ahead, without waiting."""
    with aging_log(f"{dsn} options='{IMPATIENT}'") as shuffler:
        row = shuffler.connection.execute("select max(seq) from public.sequin_events").fetchone()
        assert row
        shuffler.head = row[0]
        before = len(attached(shuffler.connection, shuffler.table))
        with shuffler.connection.transaction():
            shuffler.add(3 * PARTITION)
        assert len(attached(shuffler.connection, shuffler.table)) >= before + 3


def hold(reader: psycopg.Connection, isolation: str) -> None:
    reader.execute(f"set transaction isolation level {isolation}")
    reader.execute("select count(*) from public.sequin_events")


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_reader_that_holds_a_partition_delays_only_its_drop(
    aged_log: AgingLog, reader: psycopg.Connection, database_dsn: str, isolation: str
):
    hold(reader, isolation)
    assert aged_log.drop().waiting
    for _ in range(2):
        assert read_all(database_dsn) == aged_log.head - PARTITION, "the partition is out of new readers' sight already"
        write_on(database_dsn)
        aged_log.head += 3 * PARTITION
        assert aged_log.drop().waiting
    assert reader.execute("select count(*) from public.sequin_events where seq <= 310").fetchone() is not None
    reader.rollback()
    assert aged_log.drop().partitions == 3
    assert aged_log.kept() == (3 * PARTITION + 1, aged_log.head - 3 * PARTITION)


def test_the_reader_is_named(aged_log: AgingLog, reader: psycopg.Connection, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(retention, "MOMENTS", 0)
    hold(reader, "read committed")
    aged_log.drop()
    held = aged_log.retention_status().held_by
    assert [each.kind for each in held] == ["session"]
    assert f"long report (pid {reader.info.backend_pid}, user " in held[0].name
    assert "has been reading since 20" in held[0].name
    reader.rollback()
    assert aged_log.drop().partitions == 3
    assert aged_log.retention_status().held_by == []


def test_a_reader_of_the_partition_itself_delays_only_its_drop(
    aged_log: AgingLog, reader: psycopg.Connection, database_dsn: str
):
    first = attached(aged_log.connection, aged_log.table)[0]
    reader.execute(f"select count(*) from {first}")
    assert aged_log.drop().waiting
    write_on(database_dsn)
    assert read_all(database_dsn) > 0
    reader.rollback()
    assert aged_log.drop().partitions == 3


def test_the_shuffler_does_not_wait_while_a_detachment_waits(
    aged_log: AgingLog, reader: psycopg.Connection, database_dsn: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(drop_partition, "LOCK_TIMEOUT", (PATIENCE, PATIENCE))
    monkeypatch.setattr(drop_partition, "STATEMENT_SECONDS", 2 * PATIENCE)
    hold(reader, "read committed")
    waits = (
        "select from pg_stat_activity where application_name = 'pipeline retention' and wait_event_type = 'Lock'"
        " and datname = current_database()"
    )
    dropping = threading.Thread(target=aged_log.drop)
    dropping.start()
    try:
        eventually(lambda: aged_log.connection.execute(waits).fetchone() is not None)
        write_on(database_dsn)
        read_all(database_dsn)
        assert aged_log.connection.execute(waits).fetchone() is not None
    finally:
        reader.rollback()
        dropping.join()
