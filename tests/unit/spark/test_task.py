"""A task on an executor: what its process keeps when it has ended."""

from __future__ import annotations

import subprocess
import sys

from tests.fixtures.server import ROOT

PROGRAM = """
import pickle, sys
import pyarrow as pa
from lake.running.task import GuardedTask

def size():
    with open("/proc/self/status") as status:
        return int(status.read().partition("VmRSS:")[2].split()[0]) // 1024

def act(count):
    columns = [pa.repeat(pa.scalar(1, pa.int64()), 2_000) for _ in range(count)]
    return size() if columns else 0

guarded = GuardedTask(pickle.dumps(act), named=False)
guarded([pickle.dumps(10)])
before = size()
[inside] = guarded([pickle.dumps(10_000)])
print(before, inside, size())
"""


def test_a_worker_gives_back_what_a_task_has_taken() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": str(ROOT / "spark")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    before, inside, after = map(int, done.stdout.split())
    assert inside - before > 100, done.stdout
    assert after - before < (inside - before) / 2, done.stdout
