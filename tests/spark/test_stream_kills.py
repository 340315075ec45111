"""A stream into Postgres whose driver, JVM, or both are killed at 20 random moments: each event is counted once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.fixtures import spark
from tests.fixtures.background import BackgroundThread
from tests.fixtures.postgres import Cluster
from tests.fixtures.server import ROOT
from tests.fixtures.spark_counting import Counting
from tests.fixtures.waiting import eventually

KILLS = 20
VICTIMS = ("driver", "JVM", "both")
PATIENCE = 600
"""Seconds in which a query has to count something, or to end."""
BUSY = b"Python worker failed to connect back"
"""What Spark ends a query with where Python took more than ten seconds to start, which is not a setting."""


class Writing(BackgroundThread):
    """Adds to the log all the time."""

    def __init__(self, counting: Counting) -> None:
        super().__init__()
        self._counting = counting

    def work(self) -> None:
        while not self.stopped.wait(0.2):
            self._counting.write(random.randrange(1, 60))


def follow(stack: ExitStack, counting: Counting, *arguments: str) -> subprocess.Popen[bytes]:
    """Start spark_counts.py in its own process group; what outlives its driver is ended with the stack."""
    with (counting.checkpoint.parent / "said").open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/spark/spark_counts.py"), str(counting.checkpoint), *arguments],
            env={
                **spark.environment(),
                **counting.environment,
                "PYTHONPATH": str(ROOT / "spark"),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    stack.callback(end, process)
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def java(group: int) -> int | None:
    """The JVM of a process group."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if name == "java" and int(rest.split()[2]) == group:
                return int(stat.parent.name)
    return None


def kill(victim: str, process: subprocess.Popen[bytes]) -> None:
    if victim == "both":
        os.killpg(process.pid, signal.SIGKILL)
    elif victim == "driver":
        process.kill()
    elif (pid := java(process.pid)) is not None:
        os.kill(pid, signal.SIGKILL)


def followed(
    stack: ExitStack, counting: Counting, until: Callable[[], bool], *arguments: str
) -> subprocess.Popen[bytes]:
    """A query for which that holds, or that has ended well.

    One that Spark has ended because the machine is busy is begun again.
    """
    said = counting.checkpoint.parent / "said"
    while True:
        length = said.stat().st_size
        process = follow(stack, counting, *arguments)
        eventually(partial(has_ended_or, until, process), timeout=PATIENCE)
        if not process.poll():
            return process
        text = said.read_bytes()[length:]
        assert BUSY in text, text[-3000:].decode()


def has_ended_or(until: Callable[[], bool], process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None or until()


def moved(counting: Counting, before: int) -> bool:
    return counting.position() > before


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_query_killed_repeatedly_counts_each_event_once(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "said").touch()
    with ExitStack() as stack:
        dsn = stack.enter_context(cluster.database("events", cluster.template))
        mine = stack.enter_context(cluster.database("mine"))
        counting = stack.enter_context(Counting(dsn, mine, tmp_path / "checkpoint"))
        with Writing(counting):
            for number in range(KILLS):
                if number % 4:
                    process = followed(stack, counting, partial(moved, counting, counting.position()))
                else:  # dies whenever, perhaps before its first batch
                    process = follow(stack, counting)
                time.sleep(random.uniform(0, 3 if number % 4 else 12))
                kill(VICTIMS[number % 3], process)
        followed(stack, counting, lambda: False, "once")
        assert counting.counts() == counting.written
        assert min(counting.written.values()) > KILLS
