"""What runs at a time on one session: as many tasks as may, and jobs beside each other."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from functools import partial

import pytest
from pyspark.sql import SparkSession

from lake.running import cluster
from lake.states.side_by_side import FoldJob, JobStarter, side_by_side
from tests.fixtures.waiting import PATIENCE, eventually

pytestmark = pytest.mark.xdist_group("spark")


def stamped(number: int) -> tuple[int, float, float]:
    began = time.time()
    time.sleep(0.1)
    return number, began, time.time()


def test_no_more_tasks_run_at_a_time_than_may(spark: SparkSession) -> None:
    told: list[int] = []
    made = cluster.run_tasks(spark, stamped, range(5), told.append, at_once=1)
    assert [number for number, _, _ in made] == [0, 1, 2, 3, 4]
    spans = sorted((began, ended) for _, began, ended in made)
    assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(spans))
    assert all(done <= 5 for done in told)


def test_what_more_tasks_than_may_return_is_in_their_order(spark: SparkSession) -> None:
    assert cluster.run_tasks(spark, partial(pow, 2), range(7), lambda _: None, at_once=1) == [2**n for n in range(7)]


def test_jobs_run_beside_each_other_on_sessions_of_their_own(spark: SparkSession) -> None:
    both = threading.Barrier(2, timeout=120)
    here = threading.get_ident()
    begun_on: list[int] = []
    waiting: deque[JobStarter[tuple[int, str]]] = deque()

    def begin(number: int) -> FoldJob[tuple[int, str]]:
        begun_on.append(threading.get_ident())

        def job(session: SparkSession) -> tuple[int, str]:
            if number < 2:
                both.wait()
            session.conf.set("spark.sql.shuffle.partitions", str(100 + number))
            if number < 2:
                both.wait()
            assert session.range(10).count() == 10
            return (
                number,
                f"{session.conf.get('spark.sql.shuffle.partitions')} {session.conf.get('spark.sql.session.timeZone')}",
            )

        return job

    waiting.extend(partial(begin, number) for number in range(3))
    found = {}
    for number, settings in side_by_side(spark, waiting):
        found[number] = settings
        if number == 2:
            waiting.append(partial(begin, 3))
    assert found == {number: f"{100 + number} UTC" for number in range(4)}
    assert begun_on == [here] * 4
    assert spark.sparkContext.getConf().get("spark.scheduler.mode") == "FAIR"


def test_whoever_ends_before_the_jobs_ends_them(spark: SparkSession) -> None:
    begun = threading.Event()

    def wait_until_it_runs() -> None:
        eventually(spark.sparkContext.statusTracker().getActiveJobsIds)
        begun.set()

    def begin(number: int) -> FoldJob[int]:
        def job(session: SparkSession) -> int:
            if number == 0:
                assert begun.wait(PATIENCE)
                return 0
            threading.Thread(target=wait_until_it_runs).start()
            session.sparkContext.parallelize([600], 1).foreach(time.sleep)
            return number

        return job

    results = side_by_side(spark, deque([partial(begin, 0), partial(begin, 1)]))
    assert next(results) == 0
    before = time.monotonic()
    results.close()
    assert time.monotonic() - before < 60
