"""A lake that is compacted by processes that are killed: its readers see each event once, at every moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest

from lake.changes.manifest import LakeManifest
from lake.storage import replaced_files
from tests.fixtures import compaction_victim
from tests.fixtures.iceberg_lake import IcebergLake, iceberg_lake, iceberg_tables
from tests.fixtures.lake_ledger import all_files
from tests.fixtures.lake_readers import by_glob, by_manifest, of_listing
from tests.fixtures.linked_lake import link_folders, symbolic_links
from tests.fixtures.server import ROOT
from tests.fixtures.waiting import eventually

ORDERS = {"id": "bigint"}
TABLES = ("shop.a", "shop.b", "shop.c")
KILLS = 24
MOST_CALLS = {"metadata": 8, "commit": 4, "name": 12, "merge": 3, "day": 3, "exchange": 3, "exchanged": 3, "planned": 2}


class Reader(threading.Thread):
    """Reads all changes again and again: `times` how often, `wrong` what it saw that it should not, or not."""

    def __init__(self, what: str, read: Callable[[], list[int]], upto: Callable[[], int]) -> None:
        super().__init__(name=what)
        self.times = 0
        self.wrong: list[str] = []
        self._read, self._upto = read, upto
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                complete = self._upto()
                seen = self._read()
                if len(seen) != len(set(seen)) or not set(range(1, complete + 1)) <= set(seen):
                    self.wrong.append(f"{self.name}: {seen} where {complete} is complete")
                self.times += 1
        except Exception as error:
            self.wrong.append(f"{self.name}: {error!r}")

    def end(self) -> None:
        """Read no more."""
        self._ended.set()
        self.join()


@contextmanager
def readers(lake: IcebergLake) -> Iterator[list[Reader]]:
    """By glob, manifest and Iceberg."""
    with psycopg.connect(lake.dsn, autocommit=True) as log:

        def exported() -> int:
            row = log.execute("select coalesce(max(upto_seq), 0) from pipeline.exports where state = 'committed'")
            return int(row.fetchone()[0])  # type: ignore[index]

        def listed() -> int:
            return int(json.loads((lake.root / "manifest.json").read_bytes())["exported_upto"])

        def by_iceberg() -> list[int]:
            with psycopg.connect(lake.dsn, autocommit=True) as other:
                tables = iceberg_tables(other)
            of_changes = [table for name, table in tables.items() if name.startswith("changes.")]
            scans = [table.scan(selected_fields=("seq",)).to_arrow() for table in of_changes]
            return [seq for scan in scans for seq in scan["seq"].to_pylist()]

        def published() -> int:
            with psycopg.connect(lake.dsn, autocommit=True) as other:
                row = other.execute("select coalesce(max(upto_seq), 0) from pipeline.export_iceberg").fetchone()
            return int(row[0])  # type: ignore[index]

        made = [
            Reader("glob", lambda: by_glob(lake.root), exported),
            Reader("manifest", lambda: by_manifest(lake.root), listed),
            Reader("Iceberg", by_iceberg, published),
        ]
        for reader in made:
            reader.start()
        try:
            yield made
        finally:
            for reader in made:
                reader.end()


@contextmanager
def victims(lake: IcebergLake) -> Iterator[Callable[[str, int], int]]:
    """Let a process compact that kills itself at a call of a point; what it returns is its exit status."""
    command = [sys.executable, "-m", "tests.fixtures.compaction_victim", lake.dsn, str(lake.root)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "spark")])}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=ROOT) as process:

        def kill(point: str, calls: int) -> int:
            assert process.stdin and process.stdout
            process.stdin.write(f"{point} {calls}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        try:
            yield kill
        finally:
            process.kill()


def export(lake: IcebergLake, runs: int) -> None:
    """As the schedule does it, by a process that opens the lake."""
    for _ in range(runs):
        for number, table in enumerate(TABLES, 1):
            lake.change(table, ORDERS, {"id": lake.upto}, table=number)
        LakeManifest(lake.ledger.lake).update()
    lake.publish()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_each_reader_sees_each_event_once(database_dsn: str, tmp_path: Path) -> None:
    chance = random.Random(32)
    killed = 0
    with iceberg_lake(database_dsn, tmp_path / "lake") as lake, victims(lake) as kill:
        export(lake, 2)
        with readers(lake) as reading:
            for number in range(KILLS):
                export(lake, 2)
                point = list(compaction_victim.POINTS)[number % len(compaction_victim.POINTS)]
                killed += kill(point, chance.randint(1, MOST_CALLS.get(point, 1))) == -signal.SIGKILL
            assert kill("done", 1000) == 0
        assert [wrong for reader in reading for wrong in reader.wrong] == []
        assert min(reader.times for reader in reading) > 10
        assert killed > KILLS * 0.7, "most were to be killed before they had ended"
        replaced_files.remove(lake.ledger.lake, 0)
        every = list(range(1, lake.upto + 1))
        assert by_glob(lake.root) == by_manifest(lake.root) == every
        left = {path for path in all_files(lake.root) if path.startswith("files/")}
        assert symbolic_links(lake.root) == []
        assert left == lake.ledger.committed()
        assert len(left) == len(TABLES)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_each_reader_sees_each_event_once_while_links_are_converted(database_dsn: str, tmp_path: Path) -> None:
    """Killed before each step of each kind; what is left of it the next process does."""
    with iceberg_lake(database_dsn, tmp_path / "lake") as lake, victims(lake) as kill:
        export(lake, 2)
        for point, most in (("name", 8), ("exchange", 4), ("exchanged", 4), ("commit", 12)):
            for calls in range(1, most + 1):
                export(lake, 2)
                lake.state(TABLES[0], ORDERS, *({"id": each} for each in range(lake.upto)))
                lake.show(TABLES[0])
                link_folders(lake)
                lake.publish()
                states = Reader("latest", lambda: rows_of_latest(lake), lambda: lake.upto)
                with readers(lake) as reading:
                    states.start()
                    status = kill(point, calls)
                    eventually(partial(have_read, [states, *reading]))
                    assert kill("done", 1000) == 0 or status == 0
                states.end()
                assert [wrong for reader in (states, *reading) for wrong in reader.wrong] == [], (point, calls)
                assert symbolic_links(lake.root) == []
            assert status in (0, -signal.SIGKILL)


def have_read(readers: list[Reader]) -> bool:
    return all(reader.times > 1 or reader.wrong for reader in readers)


def rows_of_latest(lake: IcebergLake) -> list[int]:
    return [each + 1 for each in of_listing(lake.root / f"current/{TABLES[0]}/latest", "id")]
