"""How much of a table is read at once, how fast, and how it is left early."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
from psycopg import sql

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.postgres import connections, copy_text, session_settings
from pipeline.snapshots import worker as worker_module
from tests.fixtures.shuffling import stored
from tests.fixtures.snapshotting import NoStop, snapshotting
from tests.fixtures.waiting import eventually

TABLE = "create table t (id int primary key, note text)"
ROWS = "insert into t select i, repeat('x', 100) from generate_series(1, 6000) i"
MANY = sql.SQL("copy (select i from pg_catalog.generate_series(1, 1000000) i) to stdout")


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    return settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)


def test_a_part_of_a_range_is_taken_and_the_rest_is_read_later(config: Config):
    with snapshotting(config, TABLE, ROWS, "analyze t") as reading:
        reading.begin("t")
        first = reading.worker.read_next(reading.stop, 1, about=500)  # type: ignore[arg-type]
        assert first is not None
        assert 0 < first < 6000
        again = reading.worker.read_next(reading.stop, 1, about=500)  # type: ignore[arg-type]
        assert again is None, "one is under way"
        reading.finish("t")
        reading.wait_for_stream()
        assert len(reading.folded("t")) == len(reading.events("t")) == 6000
        row = reading.row("t")
        assert row is not None
        assert row[2] == row[3], "ranges done and all"


def test_the_stream_is_lively_after_a_change_of_its_own(config: Config, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker_module, "_LOOK_SECONDS", 0.0)
    with snapshotting(config, TABLE, ROWS) as reading:
        stream = worker_module.StreamActivity(reading.log, stored(reading.log).id)
        assert not stream.is_lively()
        reading.finish("t")
        assert not stream.is_lively(), "a range is no change"
        reading.source.execute("insert into t values (0, '')")
        reading.wait_for_stream()
        assert stream.is_lively()


class TwoWaits(NoStop):
    """Asked to stop after two waits, which it remembers."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def __bool__(self) -> bool:
        return len(self.waits) >= 2

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return bool(self)


def test_a_worker_waits_for_a_stream_that_lags(config: Config, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker_module, "LAG_ROWS", 50)
    staged = config.model_copy(update={"small_batches": "staged"})
    with snapshotting(staged, TABLE) as reading:
        worker, source_id = reading.worker, stored(reading.log).id

        def lags() -> bool:
            return worker_module.stream_lags(worker.source, worker.claiming, source_id)

        reading.move()
        assert not lags()
        reading.source.execute("insert into t select i, '' from generate_series(1, 100) i")
        eventually(lags)  # nothing moves them
        stop = TwoWaits()
        worker.run(stop)  # type: ignore[arg-type]
        assert stop.waits[0] == worker_module.YIELD_SECONDS
        reading.wait_for_stream()
        assert not lags()


def test_no_more_rows_a_second_are_read_than_the_setting_says():
    rate = worker_module.ReadRate(10_000, workers=2)
    assert rate.rest(5_000, took=0.25) == pytest.approx(0.75)
    assert rate.rest(100, took=1.0) == 0
    assert worker_module.ReadRate(0, workers=2).rest(5_000, took=0.0) == 0


def test_rests_leave_the_workers_their_share_together():
    took, workers = 0.01, 4
    whole = took + worker_module.rest_while_lively(took, workers)
    assert workers * took / whole == pytest.approx(worker_module.LIVELY_SHARE)
    assert worker_module.rest_while_lively(3600.0, workers) == worker_module.YIELD_SECONDS


def test_rows_come_as_the_server_has_them(config: Config):
    with connections.connect(config.source, "source", settings=session_settings.SERVER) as source:
        with closing(copy_text.read_lines(source, MANY)) as arriving:
            found = [line for lines in arriving for line in lines]
        assert found == [str(i).encode() for i in range(1, 1_000_001)]
        assert source.execute("select 1").fetchone() == (1,)


def test_a_copy_that_is_left_early_leaves_a_session_that_can_roll_back(config: Config):
    with connections.connect(config.source, "source", settings=session_settings.SERVER) as source:
        source.execute("begin")
        with closing(copy_text.read_lines(source, MANY)) as arriving:
            assert next(iter(arriving))
        source.execute("rollback")
        assert source.execute("select 1").fetchone() == (1,)


def test_an_error_among_the_rows_is_raised(config: Config):
    query = sql.SQL("copy (select 1 / (5000 - i) from pg_catalog.generate_series(1, 6000) i) to stdout")
    with connections.connect(config.source, "source", settings=session_settings.SERVER) as source:
        with pytest.raises(psycopg.errors.DivisionByZero), closing(copy_text.read_lines(source, query)) as arriving:
            for _ in arriving:
                pass
        with (
            pytest.raises(psycopg.errors.UndefinedTable),
            closing(copy_text.read_lines(source, sql.SQL("copy none to stdout"))) as arriving,
        ):
            next(arriving)
        assert source.execute("select 1").fetchone() == (1,)
