"""A stream into Postgres whose driver, JVM, or both are killed at 20 random moments: each event is counted once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
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


class Writing(BackgroundThread):
    """Adds to the log all the time."""

    def __init__(self, counting: Counting) -> None:
        super().__init__()
        self._counting = counting

    def work(self) -> None:
        while not self.stopped.wait(0.2):
            self._counting.write(random.randrange(1, 60))


def follow(stack: ExitStack, counting: Counting, *arguments: str) -> subprocess.Popen[bytes]:
    """The example, in a process group of its own; what outlives its driver is ended with the stack."""
    with (counting.checkpoint.parent / "said").open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "docs/examples/spark_counts.py"), str(counting.checkpoint), *arguments],
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


def moved(counting: Counting, before: int, process: subprocess.Popen[bytes]) -> bool:
    return counting.position() > before or process.poll() is not None


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_each_event_is_counted_once_though_the_query_is_killed_again_and_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    with ExitStack() as stack:
        dsn = stack.enter_context(cluster.database("events", cluster.template))
        mine = stack.enter_context(cluster.database("mine"))
        counting = stack.enter_context(Counting(dsn, mine, tmp_path / "checkpoint"))
        with Writing(counting):
            for number in range(KILLS):
                before = counting.position()
                process = follow(stack, counting)
                if number % 4:  # a quarter dies whenever, perhaps before its first batch
                    eventually(partial(moved, counting, before, process), timeout=300)
                    assert process.poll() is None, said.read_text()[-3000:]
                time.sleep(random.uniform(0, 3 if number % 4 else 12))
                kill(VICTIMS[number % 3], process)
        assert follow(stack, counting, "once").wait(300) == 0, said.read_text()[-3000:]
        assert counting.counts() == counting.written
        assert min(counting.written.values()) > KILLS
