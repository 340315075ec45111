"""Samples of the processes and tables of a server: what `make soak` records every few seconds."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import psycopg

from tests.benchmarks.processes import Family
from tests.fixtures.processes import GONE, title

TABLES = """
select n.nspname || '.' || root.relname, sum(pg_total_relation_size(c.oid))::bigint,
    sum(coalesce(s.n_dead_tup, 0))::bigint
from pg_class c left join pg_inherits i on i.inhrelid = c.oid
    join pg_class root on root.oid = coalesce(i.inhparent, c.oid) join pg_namespace n on n.oid = root.relnamespace
    left join pg_stat_user_tables s on s.relid = c.oid
where c.relkind in ('r', 'p') and n.nspname in ('pipeline', 'public')
group by 1
"""
"""Each table of the pipeline database with its partitions, and with the segments of wal_events."""
BACKENDS = """
select pid, application_name from pg_stat_activity
where application_name like 'pipeline %' and backend_type = 'client backend'
"""
_NUMBER = re.compile(r"^(Pss|Pss_Anon): +(\d+) kB", re.MULTILINE)


@dataclass(frozen=True)
class ProcessSample:
    """`memory`: Pss in bytes; for a session of Postgres only what is not mapped from files or shared."""

    memory: int
    files: int
    threads: int


@dataclass(frozen=True)
class TableSample:
    """`size` in bytes, with indexes and TOAST."""

    size: int
    dead: int


@dataclass(frozen=True)
class Sample:
    """`at`: seconds since the run began. Processes by name and pid."""

    at: float
    processes: dict[str, ProcessSample]
    tables: dict[str, TableSample]

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "at": round(self.at, 1)})


def read(file: Path) -> list[Sample]:
    """Return the samples of a file."""
    found = []
    for line in map(json.loads, file.read_text().splitlines()):
        processes = {name: ProcessSample(**values) for name, values in line["processes"].items()}
        tables = {name: TableSample(**values) for name, values in line["tables"].items()}
        found.append(Sample(line["at"], processes, tables))
    return found


class Sampler(threading.Thread):
    """Adds a sample to a file every few seconds, inside of its block."""

    def __init__(self, server_pid: int, database_dsn: str, file: Path, every: float) -> None:
        super().__init__(name="sampler", daemon=True)
        self._family, self._dsn, self._file, self._every = Family(server_pid), database_dsn, file, every
        self._ended = threading.Event()
        self.began = time.monotonic()
        self.error: Exception | None = None

    def __enter__(self) -> Sampler:
        self._file.unlink(missing_ok=True)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        try:
            while not self._ended.wait(self._every):
                with self._file.open("a") as lines:
                    lines.write(self._take().to_json() + "\n")
        except Exception as error:
            self.error = error

    def _take(self) -> Sample:
        at = time.monotonic() - self.began
        with closing(psycopg.connect(self._dsn, autocommit=True)) as log:
            tables = {name: TableSample(size, dead) for name, size, dead in log.execute(TABLES)}
            backends = dict[int, str](log.execute(BACKENDS).fetchall())
        processes = dict(self._processes({pid: title(pid) for pid in self._family.members()}, _program, "Pss"))
        processes |= dict(self._processes(backends, lambda name: f"Postgres: {name.split(' ')[1]}", "Pss_Anon"))
        return Sample(at, processes, tables)

    @staticmethod
    def _processes(found: dict[int, str], name: Callable[[str], str], kind: str) -> Iterator[tuple[str, ProcessSample]]:
        for pid, command in found.items():
            with suppress(OSError, KeyError, *GONE):  # it has ended
                process = psutil.Process(pid)
                numbers = dict(_NUMBER.findall(Path(f"/proc/{pid}/smaps_rollup").read_text()))
                memory = int(numbers[kind]) * 1024
                yield f"{name(command)} {pid}", ProcessSample(memory, process.num_fds(), process.num_threads())


def _program(command: str) -> str:
    """Return the name of a process of the server by its command line."""
    if command.startswith("pipeline: "):
        return command.removeprefix("pipeline: ")
    return "supervisor" if " serve" in command else "export"  # and the JVM that it starts
