"""pgbench as the writer: its tables beside bench_rows, all published, and runs of it at a rate."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg import Connection

from pipeline.postgres.embedded import wheel_bin_dir
from tests.benchmarks import programs
from tests.benchmarks.backlog import PUBLICATION, SOURCE_DATABASE, table
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.programs import Program
from tests.fixtures.postgres import Cluster

BRANCHES = 20
"""pgbench's scale: two million accounts."""
GRACE = 60.0
"""Seconds that a run may take longer than it was told to."""
TABLES = ("pgbench_accounts", "pgbench_tellers", "pgbench_branches", "pgbench_history")


@contextmanager
def tables(cluster: Cluster, scale: float) -> Iterator[Connection]:
    """A fresh `source` database with bench_rows and pgbench's tables; gone after the block."""
    with table(cluster) as source:
        command = [_pgbench(), "--initialize", "--quiet", "--scale", str(max(1, round(BRANCHES * scale)))]
        done = subprocess.run([*command, cluster.tcp_dsn(SOURCE_DATABASE)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchmarkFailed(f"pgbench made no tables: {done.stderr.strip()[-200:]}")
        source.execute(f"alter publication {PUBLICATION} add table {', '.join(TABLES)}")
        source.execute("checkpoint")
        yield source


@contextmanager
def running(cluster: Cluster, arguments: Sequence[Any], rate: float, seconds: float) -> Iterator[Program]:
    """pgbench at this many transactions a second; `arguments`: who does what."""
    command = [_pgbench(), "--no-vacuum", "--jobs", 2, "--rate", rate, "--time", round(seconds), *arguments]
    with programs.program("pgbench", [*command, cluster.tcp_dsn(SOURCE_DATABASE)]) as program:
        yield program


def transactions(program: Program, seconds: float) -> tuple[int, float]:
    """When it has ended: how many it did, and how many a second."""
    said = " ".join(" ".join(line) for line in program.rest(seconds + GRACE))
    done, rate = re.search(r"actually processed: (\d+)", said), re.search(r"tps = ([\d.]+)", said)
    if done is None or rate is None:
        raise BenchmarkFailed(f"pgbench said {said[-200:]!r}")
    return int(done[1]), float(rate[1])


def _pgbench() -> str:
    return str(wheel_bin_dir() / "pgbench")
