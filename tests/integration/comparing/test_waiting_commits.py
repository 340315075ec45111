"""Content is compared beside commits that a synchronous standby has not answered."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from tests.fixtures.comparing_content import compare, made
from tests.fixtures.postgres import Cluster, temporary_server
from tests.fixtures.stage import Stage, databases
from tests.fixtures.waiting import eventually


def test_a_commit_that_waits_for_a_standby_is_waited_for(cluster: Cluster):
    """It is streamed, and in the log, while no snapshot at the source contains it."""
    with (
        temporary_server(18) as own,
        databases(own, cluster, snapshot="never") as config,
        Stage(config) as stage,
        ThreadPoolExecutor() as threads,
    ):
        stage.start()
        made(stage, "waited", "id int primary key", "insert into waited values (1)")
        stage.run("set synchronous_commit = local")
        waiting = "select from pg_stat_activity where wait_event = 'SyncRep'"
        enough = threading.Event()
        with standby_that_is_not_there(stage):
            committing = threads.submit(commit_until, enough, config.source)
            eventually(lambda: stage.source.execute(waiting).rowcount == 1)
            enough.set()
            stage.arrive()
            comparing_now = threads.submit(compare, stage, "waited")
            with pytest.raises(TimeoutError):
                comparing_now.result(1)
        assert comparing_now.result(60) == (1 + committing.result(60), [])


def commit_until(enough: threading.Event, dsn: str) -> int:
    """Row by row, since the first ones may not wait yet; returns how many."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number in itertools.count(1):
            connection.execute("insert into waited values (%s)", [1 + number])
            if enough.wait(0.01):
                return number
    raise AssertionError("numbers do not end")


@contextmanager
def standby_that_is_not_there(stage: Stage) -> Iterator[None]:
    stage.run("alter system set synchronous_standby_names = 'nobody'", "select pg_reload_conf()")
    try:
        yield
    finally:
        stage.run("alter system reset synchronous_standby_names", "select pg_reload_conf()")
