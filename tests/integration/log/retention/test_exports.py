"""An exporter that comes after retention: a new lake begins with what is kept, an old one never skips what is gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from adbc_driver_postgresql import dbapi

from lake import ledger
from lake.changes import retention_check
from lake.changes.files import ChangeFiles
from lake.errors import DroppedEventsError
from lake.ledger import LakeLedger
from pyspark_sequin_events import catalog
from tests.fixtures.aging_log import KEEP, PARTITION, AgingLog, aging_log

TABLE = "public.sequin_events"


@pytest.fixture
def aged_log(database_dsn: str) -> Iterator[AgingLog]:
    with aging_log(database_dsn) as made:
        yield made


@pytest.fixture
def book(database_dsn: str) -> Iterator[LakeLedger]:
    with ledger.open_ledger(database_dsn) as opened:
        yield opened


@pytest.fixture
def events(database_dsn: str) -> Iterator[dbapi.Connection]:
    with catalog.connect(database_dsn) as connection:
        yield connection


def test_a_lake_begins_with_the_first_event_that_is_kept(
    aged_log: AgingLog, book: LakeLedger, events: dbapi.Connection
):
    lake = book.add_lake("/nowhere/lake", TABLE)
    assert retention_check.begins_after(book, lake, events, TABLE) == 0
    aged_log.add(2 * PARTITION + 10, 1.1 * KEEP)
    assert aged_log.drop().partitions == 0, "a lake without a single export needs all there is"
    aged_log.connection.execute("delete from pipeline.lakes")
    assert aged_log.drop().partitions == 2
    lake = book.add_lake("/nowhere/lake", TABLE)
    assert retention_check.begins_after(book, lake, events, TABLE) == 2 * PARTITION
    assert catalog.head(events, TABLE) == aged_log.head


def test_a_lake_that_lacks_what_is_gone_is_refused_with_the_seqs(
    aged_log: AgingLog, book: LakeLedger, events: dbapi.Connection
):
    lake = book.add_lake("/nowhere/lake", TABLE)
    aged_log.add(2 * PARTITION + 10, 1.1 * KEEP)
    export = book.begin(lake, 0, PARTITION // 2, None)
    ChangeFiles(book, lake).publish(export, [], {})
    book.commit(export)
    aged_log.connection.execute("update pipeline.lakes set released_at = clock_timestamp()")
    assert aged_log.drop().partitions == 2
    with pytest.raises(
        DroppedEventsError, match=r"^seq 51 to 200 of public.sequin_events were dropped .* begins with seq 201$"
    ):
        retention_check.begins_after(book, lake, events, TABLE)


def test_a_range_that_was_dropped_while_it_was_read_is_not_published(aged_log: AgingLog, events: dbapi.Connection):
    aged_log.add(PARTITION + 10, 1.1 * KEEP)
    retention_check.require_kept(events, TABLE, 0)
    aged_log.drop()
    with pytest.raises(DroppedEventsError, match="seq 1 to 100 "):
        retention_check.require_kept(events, TABLE, 0)
    retention_check.require_kept(events, TABLE, PARTITION)
