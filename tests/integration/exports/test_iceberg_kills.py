"""Iceberg tables while those who commit them are killed: a reader never sees two seqs, and nothing is lost or left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from lake.storage import replaced_files
from tests.fixtures.iceberg_lake import IcebergLake, iceberg_lake, iceberg_tables
from tests.fixtures.iceberg_victim import POINTS
from tests.fixtures.lake_ledger import all_files
from tests.fixtures.server import ROOT

ORDERS = {"id": "bigint"}
TABLES = ("shop.a", "shop.b", "shop.c")
KILLS = 20
FILES = 3 * 2 * len(TABLES)
"""That a commit writes at least."""


class Reader(threading.Thread):
    """Opens all tables again and again; `counts`: how many rows each had, of every time."""

    def __init__(self, dsn: str) -> None:
        super().__init__(name="reader")
        self.counts: list[dict[str, int]] = []
        self.failed: Exception | None = None
        self._dsn, self._ended = dsn, threading.Event()

    def run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as log:
                while not self._ended.is_set():
                    tables = iceberg_tables(log)
                    self.counts.append({name: each.scan().to_arrow().num_rows for name, each in tables.items()})
        except Exception as error:
            self.failed = error

    def end(self) -> None:
        """Read no more."""
        self._ended.set()
        self.join()


@contextmanager
def victims(lake: IcebergLake) -> Iterator[subprocess.Popen[str]]:
    """The process that forks those that are killed."""
    command = [sys.executable, "-m", "tests.fixtures.iceberg_victim", lake.dsn, str(lake.root)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "spark")])}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def kill(mother: subprocess.Popen[str], point: str, calls: int) -> None:
    """Let a process publish that kills itself there."""
    assert mother.stdin and mother.stdout
    mother.stdin.write(f"{point} {calls}\n")
    mother.stdin.flush()
    assert int(mother.stdout.readline()) == -signal.SIGKILL


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_no_reader_sees_two_seqs(database_dsn: str, tmp_path: Path) -> None:
    chance = random.Random(32)
    with iceberg_lake(database_dsn, tmp_path / "lake") as lake, victims(lake) as mother:
        reader = Reader(database_dsn)
        reader.start()
        for number in range(1, KILLS + 1):
            for oid, table in enumerate(TABLES, 1001):
                lake.change(table, ORDERS, {"id": number})
                lake.state(table, ORDERS, *({"id": each} for each in range(1, number + 1)), oid=oid)
            point = POINTS[number % len(POINTS)]
            kill(mother, point, chance.randint(1, FILES) if point == "write" else 1)
        lake.publish(keep=0)
        reader.end()
        assert reader.failed is None
        for counts in reader.counts:
            assert set(counts.values()) in (set(), {max(counts.values(), default=0)}), counts
            assert len(counts) in (0, 2 * len(TABLES))
        seen = [max(counts.values(), default=0) for counts in reader.counts]
        assert seen == sorted(seen)
        assert {4, 9, 14} <= set(seen), "what was committed before the kill was not seen"
        expected = [{"id": each} for each in range(1, KILLS + 1)]
        for table in TABLES:
            assert lake.read(f"changes.{table}") == expected
            assert sorted(row["id"] for row in lake.read(f"current.{table}")) == list(range(1, KILLS + 1))
        replaced_files.remove(lake.ledger.lake, 0)
        left = {path for path in all_files(lake.root) if path.startswith("iceberg/")}
        assert left == lake.metadata_in_use()
