"""Folds of several tables at a time on one Spark session: each gets its share of the cores."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from pyspark.sql import SparkSession

from lake.running.cores import cores

MOST = 8
"""More jobs at a time only wait for each other."""
Made = TypeVar("Made")
FoldJob = Callable[[SparkSession], Made]
"""Runs in a thread of its own, on a session whose settings are its own; it shares the cores with the others."""
JobStarter = Callable[[], FoldJob[Made]]
"""Called on the thread of whoever asks for the results, when a job's turn has come."""


def side_by_side(spark: SparkSession, waiting: deque[JobStarter[Made]]) -> Generator[Made, None, None]:
    """What the jobs make, as each ends. Those waiting begin in their order; more may be added meanwhile.

    When whoever takes the results ends before they do, the jobs of Spark that still run are ended.
    """
    most = min(MOST, max(2, cores(spark)))  # with one core, one table is published while another is folded
    running: set[Future[Made]] = set()
    free = deque(range(most))
    places: dict[Future[Made], int] = {}
    with ThreadPoolExecutor(most, "fold") as threads:
        try:
            while waiting or running:
                while waiting and free:
                    job = waiting.popleft()()
                    place = free.popleft()
                    running.add(begun := threads.submit(_run, spark, place, job))
                    places[begun] = place
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for each in ended:
                    free.append(places.pop(each))
                    yield each.result()
        except BaseException:
            spark.sparkContext.cancelAllJobs()
            raise


def _run(spark: SparkSession, place: int, job: FoldJob[Made]) -> Made:
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", f"fold-{place}")
    return job(spark.newSession())
