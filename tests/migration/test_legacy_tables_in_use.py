"""What reads and writes the log does so with an events table of an earlier version, once it is migrated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pipeline.client import EventLog
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.consumers.cursor.feed import read_page
from pipeline.log import indexes, shapes, table_shape
from pipeline.log.page import EVERYTHING
from pipeline.log.retention import delete_rows
from pipeline.log.table import DEFAULT, EventsTable
from pipeline.operate import retention
from pipeline.operate.preflight import legacy_log
from pipeline.server import schedule
from pyspark_sequin_events import catalog
from tests.fixtures.legacy_tables import BY_DAY, PLAIN, ROWS, SHAPES, Shape, boot, fingerprint, read_on, shuffled
from tests.fixtures.postgres import Cluster
from tests.fixtures.staged import Client, Staged, Table, create, insert

DEFAULT_PARTITION = next(shape for shape in SHAPES if "default" in shape.name)
DAY = datetime(2025, 1, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def migrated_dsn(clusters: Callable[[int], Cluster], bare: Callable[[Cluster], str]) -> Iterator[str]:
    """A log with old events, three of each seq, and two new ones; for those who only read."""
    server = clusters(15)
    with server.database("old", bare(server)) as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            PLAIN.create(connection)
        boot(dsn)
        shuffled(dsn, DEFAULT, 1001, 1002)
        yield dsn


@pytest.fixture
def migrated(migrated_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(migrated_dsn, autocommit=True) as connection:
        yield connection


def settings_for(dsn: str, **more: Any) -> Config:
    return settings.load(database_dsn=dsn, source_dsn=dsn, export_schedule="off", **more)


def everything(connection: psycopg.Connection[Any]) -> list[str]:
    return sorted(row[3] for row in read_on(connection, DEFAULT))


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_a_program_that_reads_pages_gets_every_event_though_seqs_repeat(
    limit: int, migrated_dsn: str, migrated: psycopg.Connection[Any]
):
    seen: list[str] = []
    after = 0
    while page := EventLog(migrated_dsn).read(after, limit):
        seen += [str(event.record["id"]) for event in page]
        after = page[-1].seq
    assert sorted(seen) == everything(migrated)
    assert seen[-2:] == ["1001", "1002"]


def test_an_export_of_seqs_far_apart_has_no_empty_ranges(bare_dsn: str, old: psycopg.Connection[Any]):
    SHAPES[0].create(old)  # microseconds
    seqs = [row[0] for row in read_on(old, DEFAULT)]
    with catalog.connect(bare_dsn) as connection:
        found = list(catalog.ranges(connection, str(DEFAULT), (0, seqs[-1]), 10, most=1000))
    assert found[0][0] == 0
    assert [end for _, end in found] == [after for after, _ in found[1:]] + [seqs[-1]]
    events = [sum(after < seq <= end for seq in seqs) for after, end in found]
    assert (sum(events), max(events), len(found)) == (ROWS, 12, 5), "ten, and what has the seq of the tenth"


@pytest.mark.parametrize("rows", [1, 4])
def test_a_stream_gets_every_event_though_seqs_repeat(rows: int, migrated_dsn: str, migrated: psycopg.Connection[Any]):
    async def read() -> list[str]:
        found: list[str] = []
        async with await psycopg.AsyncConnection.connect(migrated_dsn, autocommit=True) as connection:
            after = 0
            while (batch := await read_page(connection, shapes.JSON, after, EVERYTHING, rows)).upto > after:
                found += [str(entry.seq) for entry in batch.entries]
                after = batch.upto
        return found

    assert asyncio.run(read()) == [str(row[0]) for row in read_on(migrated, DEFAULT)]


def test_a_work_queue_gets_each_row_with_its_own_record(migrated: psycopg.Connection[Any]):
    client = create(migrated, "queue")
    fold(migrated)
    items = receive_all(client)
    assert sorted(str(item.record["id"]) for item in items) == everything(migrated)
    assert all(item.pk == str(item.record["id"]) for item in items), "not that of another row with this seq"


def fold(connection: psycopg.Connection[Any]) -> None:
    from pipeline.consumers.queue import consumers, queue_apply

    row = connection.execute("select id from pipeline.sources").fetchone()
    assert row is not None
    while queue_apply.catch_up(connection, row[0], DEFAULT, consumers.list_consumers(connection)):
        continue


def receive_all(client: Client) -> list[Any]:
    found: list[Any] = []
    while items := client.receive():
        client.ack(*items)
        found += items
    return found


def test_the_view_that_functions_read_has_the_columns_of_today(migrated: psycopg.Connection[Any]):
    row = migrated.execute("select to_jsonb(e) from pipeline.events e order by seq limit 1").fetchone()
    assert row is not None
    assert set(row[0]) == {*table_shape.REQUIRED, *table_shape.ADDED}
    assert (row[0]["commit_lsn"], row[0]["source_epoch"]) == (None, 0)


def test_a_table_that_was_migrated_is_a_plain_ok(migrated: psycopg.Connection[Any]):
    found = list(legacy_log.check(migrated, DEFAULT))
    assert [(each.level, each.text) for each in found] == [("ok", "public.sequin_events exists")]


def test_the_index_for_histories_is_made_beside_writers_and_once(bare_dsn: str, old: psycopg.Connection[Any]):
    for shape in (PLAIN, Shape("divided", divided="by day", table=EventsTable("audit", "changes"))):
        shape.create(old)
        boot(bare_dsn, shape.table)
        config = settings_for(bare_dsn, events_table=str(shape.table))
        schedule.index_history(config, lambda: False)
        found = table_shape.describe_relation(old, shape.table)
        assert found and indexes.index_exists(old, found.oid, indexes.ROW_HISTORY)
        once = fingerprint(old, shape.table.schema)
        schedule.index_history(config, lambda: False)
        assert fingerprint(old, shape.table.schema) == once


def test_an_index_that_was_interrupted_is_made_anew(bare_dsn: str, old: psycopg.Connection[Any]):
    PLAIN.create(old)
    boot(bare_dsn)
    invalid = "select count(*) from pg_index where indrelid = 'sequin_events'::regclass and not indisvalid"
    with psycopg.connect(bare_dsn) as writer:  # whose transaction the build waits for
        writer.execute("insert into sequin_events select * from sequin_events limit 0")
        schedule.index_history(settings_for(bare_dsn), lambda: old.execute(invalid).fetchone() == (1,))
    assert old.execute(invalid).fetchone() == (1,)
    schedule.index_history(settings_for(bare_dsn), lambda: False)
    assert old.execute(invalid).fetchone() == (0,)
    found = table_shape.describe_relation(old, DEFAULT)
    assert found and indexes.index_exists(old, found.oid, indexes.ROW_HISTORY)


def test_old_rows_are_dropped_by_age_in_batches_of_rows_not_of_seqs(
    bare_dsn: str, old: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(delete_rows, "BATCH", 25)
    SHAPES[0].create(old)  # 250,000 seqs a transaction
    boot(bare_dsn)
    shuffled(bare_dsn, DEFAULT, 1001, 1002)
    outcome = retention.run(settings_for(bare_dsn, retention="1h"), lambda: False)
    assert (outcome.rows, outcome.partitions) == (ROWS, 0)
    assert everything(old) == ["1001", "1002"]


def test_a_partitioned_old_table_is_trimmed_too(bare_dsn: str, old: psycopg.Connection[Any]):
    BY_DAY.create(old)
    boot(bare_dsn)
    shuffled(bare_dsn, DEFAULT, 1001)
    assert retention.run(settings_for(bare_dsn, retention="1h"), lambda: False).rows == ROWS
    assert everything(old) == ["1001"]


def committed(dsn: str, *times: datetime) -> None:
    """Events whose transactions committed then, whatever day it is."""
    staged = Staged(dsn, [Table("orders")])
    try:
        for number, at in enumerate(times):
            staged.commit(insert("orders", id=number))
            staged.connection.execute("update public.wal_events set committed_at = %s where ordinal = %s", [at, number])
        staged.shuffle()
    finally:
        staged.close()


def places(connection: psycopg.Connection[Any]) -> list[str]:
    """The partitions that hold new events, in order of seq."""
    query = "select tableoid::regclass::text from sequin_events where commit_lsn is not null order by seq"
    return [row[0] for row in connection.execute(query)]


def test_a_table_by_committed_at_gets_a_default_partition(bare_dsn: str, old: psycopg.Connection[Any]):
    BY_DAY.create(old)
    old.execute("create table sequin_events_default ()")  # one that was detached
    boot(bare_dsn)
    committed(bare_dsn, DAY, DAY - 10 * 24 * HOUR, DAY + 23 * HOUR, DAY + 24 * HOUR)
    names = ["p20250110", "default_1", "p20250110", "default_1"]
    assert places(old) == [f"sequin_events_{name}" for name in names]
    assert [row[3] for row in read_on(old, DEFAULT)[ROWS:]] == ["0", "1", "2", "3"], "nothing is lost"


def test_a_default_partition_that_is_there_is_used(bare_dsn: str, old: psycopg.Connection[Any]):
    DEFAULT_PARTITION.create(old)
    boot(bare_dsn)
    committed(bare_dsn, DAY + 24 * HOUR)
    assert places(old) == ["sequin_events_default"]


def test_daily_partitions_of_an_earlier_version_stay(bare_dsn: str, old: psycopg.Connection[Any]):
    BY_DAY.create(old)
    boot(bare_dsn)
    old.execute("alter table sequin_events detach partition sequin_events_default")
    old.execute("drop table sequin_events_default")
    ahead = DAY + 24 * HOUR
    old.execute(
        "create table sequin_events_p20250111 partition of sequin_events"
        f" for values from ('{ahead}') to ('{ahead + 24 * HOUR}')"
    )
    committed(bare_dsn, ahead, ahead + 24 * HOUR)  # the shuffler adds the default partition when it starts
    assert places(old) == ["sequin_events_p20250111", "sequin_events_default"]


def test_an_id_that_comes_to_its_end_is_said(bare_dsn: str, old: psycopg.Connection[Any]):
    SHAPES[0].create(old)
    boot(bare_dsn)
    old.execute("select setval('sequin_events_id_seq', 2000000000)")
    warning = list(legacy_log.check(old, DEFAULT))[-1]
    assert warning.level == "warning"
    assert warning.text.startswith("column id of public.sequin_events is integer and at 2,000,000,000 of 2,147,483,647")


def test_check_announces_the_migration_and_names_remaining_writers(old: psycopg.Connection[Any]):
    PLAIN.create(old)
    will, *nothing = legacy_log.check(old, DEFAULT)
    assert (will.level, nothing) == ("ok", [])
    assert "is from an older version: `pipeline serve` will migrate it" in will.text
    old.execute("update sequin_events set inserted_at = now() where seq = (select max(seq) from sequin_events)")
    assert [each.level for each in legacy_log.check(old, DEFAULT)] == ["ok", "warning"]
