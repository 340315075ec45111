"""Folds several tables at a time on one Spark session: each fold gets its share of the cores."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from pyspark.sql import SparkSession

from lake.running.cores import cores

MOST = 8
"""The most jobs at a time: more only wait for each other."""
Made = TypeVar("Made")
FoldJob = Callable[[SparkSession], Made]
"""A function that runs in a separate thread, on a session with separate settings; jobs share the cores."""
JobStarter = Callable[[], FoldJob[Made]]
"""A function that makes a job when its turn has come, on the thread that consumes the results."""


def side_by_side(spark: SparkSession, waiting: deque[JobStarter[Made]]) -> Generator[Made, None, None]:
    """Yield the result of each job when it ends. Waiting jobs begin in order; the caller may add more during the run.

    If the caller stops before the jobs do, running jobs of Spark are cancelled.
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
