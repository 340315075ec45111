"""Transactions of 3 million rows and of 50,000 subtransactions: in flat memory, visible as a whole, in order."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fixtures.background import BackgroundThread
from tests.fixtures.processes import peak_megabytes, resident_megabytes
from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually

SMALL, LARGE, SUBTRANSACTIONS = 300_000, 3_000_000, 50_000
WORKER_MEGABYTES = 150
FLAT = 1.5
"""Times what a tenth of the rows takes."""
ARRIVES_WITHIN = 300
EVERY = 0.5
ROLES = ("replication", "shuffle")


class Memory(BackgroundThread):
    """Resident memory of the two roles that move data, in MB, sampled by phase."""

    def __init__(self, server: Serving) -> None:
        super().__init__()
        self.pids = {role: server.child_pid(role) for role in ROLES}
        self._phase = "start"
        self._samples: dict[tuple[str, str], list[float]] = {}
        self._peaks: dict[tuple[str, str], float] = {}

    def work(self) -> None:
        self._look()
        while not self.stopped.wait(EVERY):
            self._look()

    def begin(self, phase: str) -> None:
        """What is sampled from now on counts for this phase."""
        self._phase = phase
        self._look()

    def end(self) -> None:
        """Remember the highest there ever was until now; print the phase."""
        for role, pid in self.pids.items():
            self._peaks[role, self._phase] = peak_megabytes(pid)
            samples = self._samples[role, self._phase]
            print(
                f"{self._phase}, {role}: start {samples[0]:.1f}, median {statistics.median(samples):.1f},"
                f" max {max(samples):.1f} MB ({len(samples)} samples; ever {self._peaks[role, self._phase]:.1f})"
            )

    def peak(self, role: str, phase: str) -> float:
        """The highest there ever was up to the end of a phase."""
        return self._peaks[role, phase]

    def _look(self) -> None:
        for role, pid in self.pids.items():
            self._samples.setdefault((role, self._phase), []).append(resident_megabytes(pid))


class Arrival:
    """What readers of the log see after a seq, and what status says meanwhile."""

    def __init__(self, log: psycopg.Connection, status: Callable[[], dict[str, Any]]) -> None:
        self._log = log
        self._status = status
        (self.after,) = log.execute("select coalesce(max(seq), 0) from sequin_events").fetchone() or (0,)
        self.open_changes: list[int] = []

    def first_seen(self) -> int:
        """How many rows there were when there were any; status is asked in between."""

        def look() -> int:
            (rows,) = self._log.execute(
                "select count(*) from sequin_events where seq > %s", [self.after]
            ).fetchone() or (0,)
            if not rows:
                self.open_changes.append(self._status()["open_changes"])
            return int(rows)

        return eventually(look, ARRIVES_WITHIN)


@pytest.fixture
def source(source_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table big (id int primary key); create table small (id int primary key)")
        yield connection


@pytest.fixture
def command(tmp_path: Path, source_dsn: str, database_dsn: str, slot_name: str) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        settings = {"source_dsn": source_dsn, "database_dsn": database_dsn, "slot": slot_name}
        done = run_command(*arguments, folder=tmp_path, **settings)
        assert done.returncode == 0, done
        return done.stdout

    return run


def insert(source: psycopg.Connection, first: int, rows: int) -> None:
    source.execute("insert into big select generate_series(%s::int, %s)", [first, first + rows - 1])


def many_subtransactions(source: psycopg.Connection, first: int, rows: int) -> None:
    """Insert each row in its own subtransaction; every tenth is rolled back with its row."""
    source.execute(f"""
        do $$ begin for n in {first}..{first + rows - 1} loop
            begin
                insert into big values (n);
                if n % 10 = 0 then raise exception 'back'; end if;
            exception when raise_exception then null;
            end;
        end loop; end $$
    """)


def arrive(
    write: Callable[[], None],
    rows: int,
    source: psycopg.Connection,
    log: psycopg.Connection,
    command: Callable[..., str],
) -> Arrival:
    """Commit it, then a small transaction; returns once both are there, having seen nothing of the one in part."""
    arrival = Arrival(log, lambda: json.loads(command("status", "--json")))
    write()
    (key,) = source.execute("insert into small select coalesce(max(id), 0) + 1 from small returning id").fetchone() or (
        0,
    )
    assert arrival.first_seen() >= rows
    query = (
        "select source_table_name, count(*), count(distinct commit_lsn) from sequin_events where seq > %s group by 1"
    )
    there = {"big": (rows, 1), "small": (1, 1)}
    eventually(lambda: {name: (n, lsns) for name, n, lsns in log.execute(query, [arrival.after])} == there)
    newest = "select source_table_name, record_pk from sequin_events order by seq desc limit 1"
    assert log.execute(newest).fetchone() == ("small", str(key))
    return arrival


@pytest.mark.long
@pytest.mark.timeout(2 * ARRIVES_WITHIN + 300)
def test_three_million_rows_and_fifty_thousand_subtransactions(
    source: psycopg.Connection, log: psycopg.Connection, serve: Callable[..., Serving], command: Callable[..., str]
):
    server = serve()
    with Memory(server) as memory:
        memory.begin(f"{SMALL:,} rows")
        arrive(lambda: insert(source, 1, SMALL), SMALL, source, log, command)
        memory.end()
        memory.begin(f"{LARGE:,} rows")
        arrival = arrive(lambda: insert(source, SMALL + 1, LARGE), LARGE, source, log, command)
        memory.end()
        memory.begin(f"{SUBTRANSACTIONS:,} subtransactions")
        first = SMALL + LARGE + 1
        kept = SUBTRANSACTIONS * 9 // 10
        arrive(lambda: many_subtransactions(source, first, SUBTRANSACTIONS), kept, source, log, command)
        memory.end()
    print(f"open changes by status: {arrival.open_changes}")
    rising = [number for number in arrival.open_changes if number]
    assert len(rising) > 2
    assert rising == sorted(rising)
    assert memory.peak("replication", f"{SMALL:,} rows") < WORKER_MEGABYTES
    assert memory.pids == {role: server.child_pid(role) for role in ROLES}
    for role in ROLES:
        for phase in (f"{LARGE:,} rows", f"{SUBTRANSACTIONS:,} subtransactions"):
            assert memory.peak(role, phase) <= FLAT * memory.peak(role, f"{SMALL:,} rows"), role
    print(command("verify"))
