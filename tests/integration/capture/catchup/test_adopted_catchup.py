"""A catch-up whose parts become partitions gives the log that one slot gives, row by row."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pipeline.postgres import connections
from tests.fixtures.postgres import Cluster
from tests.fixtures.shuffling import move_until, shuffler
from tests.fixtures.two_logs import BEHIND, FORTY_KILOBYTES, CatchingUp, catching_up

OF_PARTS = r"select sum(reltuples)::int from pg_class where relname ~ '^sequin_events_\d{12}_\d+_1$' and relkind = 'r'"


@pytest.fixture(scope="module")
def stage(clusters: Callable[[int], Cluster]) -> Iterator[CatchingUp]:
    with catching_up(clusters(18), clusters(16)) as made:
        yield made


@contextmanager
def shuffling(dsn: str) -> Iterator[None]:
    stopped = threading.Event()
    with connections.connect(dsn, "pipeline database") as log:
        thread = threading.Thread(target=move_until, args=(stopped, shuffler(log)))
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()


@pytest.mark.long
def test_the_parts_of_a_catch_up_become_partitions(stage: CatchingUp):
    stage.backlog(300, megabytes=BEHIND)
    adopting = stage.many.model_copy(update={"adopt_threshold": "4kB"})
    with shuffling(adopting.database):
        stage.drain(adopting)
    stage.require_equal_logs()
    with psycopg.connect(adopting.database) as log:
        assert (log.execute(OF_PARTS).fetchone() or (0,))[0] > 50
        adopted = log.execute("select sum(changes)::int from pipeline.ways where way = 'adopt'").fetchone()
        assert adopted is not None and adopted[0] > 200


@pytest.mark.long
def test_all_of_a_backlog_is_adopted_that_several_slots_read(stage: CatchingUp, caplog: pytest.LogCaptureFixture):
    """The first batch of worker 0, too, and what comes last of its part: where that ends the source's WAL does not."""
    adopting = stage.many.model_copy(update={"adopt_threshold": "1MB"})
    with shuffling(adopting.database), psycopg.connect(adopting.database, autocommit=True) as log:
        stage.drain(adopting)
        log.execute("delete from pipeline.ways")
        for _ in range(BEHIND * 25):
            stage.source.execute(FORTY_KILOBYTES)
        with caplog.at_level("INFO"):
            stage.drain(adopting)
        ways = log.execute("select way, sum(changes)::int from pipeline.ways group by 1").fetchall()
    assert "catchup.planned" in [getattr(record, "action", "") for record in caplog.records]
    assert ways == [("adopt", BEHIND * 25 * 20)]
    stage.require_equal_logs()
