"""A worker that reads rows with a condition: found harmless in each transaction, and within its own time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from pipeline.capture.source import sources
from pipeline.log.staging import ranges
from pipeline.log.staging.range_writer import RangeWriter
from pipeline.log.staging.ranges import PlannedRange
from pipeline.postgres import connections, reading_session, session_settings
from pipeline.snapshots import backfills, reader, start
from pipeline.snapshots.reader import RangeReader, RangeReadTimeoutError
from pipeline.snapshots.status import BackfillStatus
from pipeline.snapshots.worker import SnapshotWorker
from tests.fixtures.captured import Captured, captured


@pytest.fixture
def known(source_dsn: str, database_dsn: str) -> Iterator[Captured]:
    with captured(source_dsn, database_dsn) as found:
        yield found


@pytest.fixture
def worker(known: Captured, source_dsn: str, database_dsn: str) -> Iterator[SnapshotWorker]:
    stored = sources.find(known.log, None)
    assert stored is not None
    with ExitStack() as stack:
        source = stack.enter_context(
            reading_session.connect(known.config, name="w", settings=session_settings.SNAPSHOT)
        )
        take, staging = (stack.enter_context(connections.connect(database_dsn, "pipeline database")) for _ in "ab")
        yield SnapshotWorker(known.config, source, take, staging, stored.id, RangeReader(source, take, stored))


def begun(known: Captured, worker: SnapshotWorker, where: str) -> BackfillStatus:
    """A backfill with two ranges to read."""
    found = start.start(known.config, known.source, known.log, "orders", start.by_text(where))
    backfills.begin_wait(known.log, found.id, 1, 1, {})
    stored = backfills.find(known.log, found.id)
    assert stored is not None
    planned = [PlannedRange(stored.table_oid, stored.table_oid, None, first, first + 2) for first in (0, 2)]
    ranges.plan(known.log, worker.source_id, stored.epoch, found.id, planned)
    backfills.store_plan(known.log, stored, {stored.table_oid: 1}, True, (1, 1), 2)
    return found


def read(worker: SnapshotWorker) -> int:
    taken = ranges.claim_range(worker.claiming, worker.source_id, 9)
    assert taken is not None
    return worker._read(taken, lambda: False)  # type: ignore[arg-type]


def outcome(known: Captured, found: BackfillStatus) -> tuple[str, str | None]:
    now = backfills.find(known.log, found.id)
    assert now is not None
    return now.state, now.reason


def test_a_condition_is_checked_in_each_transaction(known: Captured, worker: SnapshotWorker) -> None:
    with psycopg.connect(known.config.source, autocommit=True) as owner:
        owner.execute("create type color as enum ('x'); alter table orders alter state type color using state::color")
        found = begun(known, worker, "state = 'x'")
        assert read(worker) > 0
        owner.execute("create function ran(color) returns text language plpgsql as $$ begin raise 'ran'; end $$")
        owner.execute("create cast (color as text) with function ran(color) as implicit")
    assert read(worker) == 0
    state, reason = outcome(known, found)
    assert (state, "state is not allowed, as its type" in (reason or "")) == ("failed", True), reason


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("alter table orders drop column state", "the table has no column state"),
        ("create type t as (x int); alter table orders drop state, add state t", "state is not allowed, as its type"),
    ],
)
def test_columns_that_have_changed_since_fail_it(
    known: Captured, worker: SnapshotWorker, change: str, said: str
) -> None:
    found = begun(known, worker, "state = 'x'")
    with psycopg.connect(known.config.source, autocommit=True) as other:
        other.execute(change.encode())
    assert read(worker) == 0
    state, reason = outcome(known, found)
    assert (state, said in (reason or "")) == ("failed", True), reason


def test_what_was_stored_by_another_hand_is_not_trusted(known: Captured, worker: SnapshotWorker) -> None:
    found = begun(known, worker, "id > 5")
    known.log.execute("update pipeline.backfills set condition = 'pg_sleep(1) is null'")
    assert read(worker) == 0
    state, reason = outcome(known, found)
    assert (state, "pg_sleep() is not allowed" in (reason or "")) == ("failed", True), reason


def test_a_condition_has_a_time_of_its_own(
    known: Captured, worker: SnapshotWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CONDITION_SECONDS", 0.8)
    found = begun(known, worker, "length(repeat(state, 50000000 + id)) > 5")
    stored, name = sources.find(known.log, None), known.source.info.dbname
    assert stored is not None
    taken = ranges.claim_range(worker.claiming, worker.source_id, 9)
    backfill = backfills.find(known.log, found.id)
    assert taken is not None and backfill is not None
    for setting, remedy in (
        ("0", "its condition may take 0.8 s; start the backfill with another condition"),
        ("500", "raise that timeout"),
    ):
        known.source.execute(f"alter role current_user in database {name} set statement_timeout = {setting}".encode())
        with (
            pytest.raises(RangeReadTimeoutError) as slow,
            reading_session.connect(known.config, name="w", settings=session_settings.SNAPSHOT) as source,
            RangeWriter(worker.staging, worker.source_id, taken) as staging,
        ):
            RangeReader(source, worker.claiming, stored).read(taken, staging, {}, backfill.condition)
        assert slow.value.remedy.startswith(remedy)
    ranges.give_back(worker.claiming, taken)
    assert read(worker) == 0
    now = backfills.find(known.log, found.id)
    assert now is not None and (now.state, now.ranges_all) == ("reading", 3)
