"""The log's size while it is written to: partitions of the right size, and no growth over many retentions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from pipeline.capture.source import sources
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.log import partitions
from pipeline.log.partitions import PartitionCreator, attached
from pipeline.operate import retention
from pipeline.postgres import connections
from tests.fixtures.aging_log import KEEP, AgingLog, aging_log
from tests.fixtures.background import BackgroundThread
from tests.fixtures.replicating import Replicating
from tests.fixtures.shuffling import move_until, shuffler
from tests.fixtures.waiting import eventually

SECONDS, PERIODS, BATCH = 2, 5, 20
LATELY = 4 * SECONDS
"""Of what was written before nothing is left, even where both processors are busy."""
PACE = 0.05
"""Seconds between two batches."""
ROW_BYTES, PARTITION_BYTES = 800, 100_000
"""What is plenty for a row with its index entries, and for a partition's files."""
MOST_PARTITIONS = 25
"""A retention and a quarter in eighths of it, those made ahead for a whole segment of staging, the table itself."""
SIZE = """
    select (select count(*) from public.sequin_events), sum(pg_total_relation_size(relid)), count(*)
    from pg_partition_tree('public.sequin_events')
"""


@pytest.fixture
def aged_log(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgingLog]:
    monkeypatch.setattr(partitions, "MIN_ROWS", 10)
    with aging_log(database_dsn) as made:
        yield made


def spans(aged_log: AgingLog) -> list[int]:
    return [each.upper - each.lower for each in attached(aged_log.connection, aged_log.table)]


def growing(aged_log: AgingLog, retention: float = KEEP) -> PartitionCreator:
    return PartitionCreator(aged_log.connection, aged_log.table, 10_000, retention)


def test_without_events_a_partition_is_as_small_as_may_be(aged_log: AgingLog):
    growing(aged_log).reserve(1)
    assert spans(aged_log) == [10]


def test_a_partition_spans_an_eighth_of_the_retention_at_the_recent_rate(aged_log: AgingLog):
    aged_log.partitions = growing(aged_log, retention=600)
    aged_log.add(5, 10)
    aged_log.add(4)
    assert spans(aged_log)[1] == pytest.approx(9 / 10 * 600 / 8, rel=0.3)


def test_partitions_grow_by_steps_when_traffic_grows_and_shrink_at_once(aged_log: AgingLog):
    aged_log.partitions = growing(aged_log, retention=10 * KEEP)
    aged_log.add(5)
    aged_log.add(4)
    assert spans(aged_log) == [10, 8 * 10]
    aged_log.add(40, 1000)
    aged_log.add(2)
    assert spans(aged_log) == [10, 8 * 10, 10]


def test_one_large_transaction_gets_one_large_partition(aged_log: AgingLog):
    aged_log.partitions = growing(aged_log)
    aged_log.add(5_000)
    assert len(spans(aged_log)) <= 2
    assert spans(aged_log)[0] >= 5_000


def test_no_partition_is_larger_than_without_a_retention(aged_log: AgingLog):
    aged_log.partitions = growing(aged_log)
    for _ in range(3):
        aged_log.add(20_000)
    assert max(spans(aged_log)) <= 10_000


class Shuffling(BackgroundThread):
    """The shuffler as its role runs it, until told to stop."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def work(self) -> None:
        with connections.connect(self.config.database, "pipeline database") as connection:
            while sources.find(connection, None) is None:
                self.stopped.wait(0.05)
            kept = self.config.retention_seconds
            move_until(self.stopped, shuffler(connection, stopping=self.stopped.is_set, retention=kept))


def write(source: psycopg.Connection) -> None:
    source.execute("insert into t (note) select repeat('x', 200) from generate_series(1, %s)", [BATCH])


@dataclass(frozen=True)
class Sample:
    """What was written by then, and what of it the log keeps."""

    at: float
    written: int
    rows: int
    size: int
    partitions: int


def sampled(aged_log: psycopg.Connection, at: float, written: int) -> Sample:
    row = aged_log.execute(SIZE).fetchone()
    assert row
    return Sample(at, written, *map(int, row))


def write_and_drop(config: Config, source: psycopg.Connection, aged_log: psycopg.Connection) -> list[Sample]:
    """Ten retentions of writing, a run of retention after each batch."""
    found, written = [Sample(0, 0, 0, 0, 0)], 0
    begin, pace = time.monotonic(), threading.Event()
    while found[-1].at < PERIODS * SECONDS:
        write(source)
        written += BATCH
        retention.run(config, lambda: False)
        found.append(sampled(aged_log, time.monotonic() - begin, written))
        pace.wait(PACE)
    return found


@pytest.mark.long
def test_the_log_stays_bounded_over_many_retentions_of_writing(
    source_dsn: str, database_dsn: str, slot_name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(partitions, "MIN_ROWS", 200)
    config = settings.load(
        source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name, retention=f"{SECONDS}s", export_schedule="off"
    )
    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(database_dsn, autocommit=True) as aged_log,
        Shuffling(config),
    ):
        source.execute("create table t (id bigserial primary key, note text)")
        with Replicating(config):
            eventually(lambda: sources.find(aged_log, None))
            found = write_and_drop(config, source, aged_log)
        found_retention = retention.read(config, aged_log)
    assert found_retention is not None
    assert found_retention.dropped_below > found[-1].written / 2
    for now in found:
        lately = now.written - max(each.written for each in found if each.at <= max(0, now.at - LATELY))
        assert now.rows <= lately + BATCH, now
        assert now.partitions <= MOST_PARTITIONS, now
        assert now.size <= ROW_BYTES * (lately + BATCH) + PARTITION_BYTES * now.partitions, now
