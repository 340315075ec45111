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
from tests.fixtures.two_logs import BEHIND, CatchingUp, catching_up

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
