"""What `pipeline verify --content` takes: time, CPU of the source, and bytes that leave it."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass

import psycopg
from psycopg import Connection
from psycopg.conninfo import make_conninfo

from tests.benchmarks import processes, visible
from tests.benchmarks.backlog import SOURCE_DATABASE
from tests.benchmarks.byte_count import ByteCount
from tests.benchmarks.contenders import LIMIT
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.rows_before import filled, wait_until_read
from tests.benchmarks.server import COMMAND, DATABASE, PipelineServer, serve
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster
from tests.fixtures.processes import peak_megabytes

NAME, SLOT = "content", "content"
ROWS = 2_000_000
PACE = 50
"""Rows that are inserted into the table each second meanwhile."""
OF_SNAPSHOT, OF_CPU, OF_BYTES = 0.5, 4.0, 1 / 50
"""The most time, as a share of the snapshot's; CPU of the source's session, as a multiple of a COPY's; and bytes."""
MEGABYTES = 150
_LOOK = 0.02
_SESSIONS = "select pid, datname from pg_stat_activity where application_name = 'pipeline verify'"


@dataclass(frozen=True)
class Found:
    """Seconds, CPU seconds and bytes: of the snapshot, of a COPY of the same rows, and of the comparison."""

    snapshot: float
    seconds: float
    copy_cpu: float
    cpu: float
    log_cpu: float
    copy_bytes: int
    bytes: int
    megabytes: float


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Read a table, compare it while rows are added, and copy it; `runs` times."""
    rows = max(20_000, round(ROWS * scale))
    found: list[Found] = []
    others: list[float] = []
    for run in range(1, runs + 1):
        with filled(cluster, rows) as source:
            meter = OtherPrograms(postmaster(cluster))
            found.append(_measure(cluster, source, rows))
            others.append(meter.cores())
        _say(f"{NAME}, run {run} of {runs}", found[-1], others[-1])
    _add(rows, found, figures)
    figures.add(NAME, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)


def _measure(cluster: Cluster, source: Connection, rows: int) -> Found:
    assert cluster.server is not None
    assert cluster.server.port is not None
    with (
        serve(cluster, SLOT) as server,
        cluster.connect(DATABASE) as database,
        ByteCount(cluster.server.port) as proxy,
    ):
        dsn = make_conninfo(cluster.tcp_dsn(SOURCE_DATABASE), port=proxy.port)
        snapshot = wait_until_read(server, database)
        copy_cpu, copy_bytes = _copy_cpu(source), _copy_bytes(proxy, dsn)
        before, started = proxy.sent, time.monotonic()
        with visible.writing(cluster, rows, 1, PACE):
            cpu, log_cpu, megabytes = _verify(server, dsn, source)
            seconds = time.monotonic() - started
        sent = proxy.sent - before
        server.require_steady()
    return Found(snapshot, seconds, copy_cpu, cpu, log_cpu, copy_bytes, sent, megabytes)


def _copy_cpu(source: Connection) -> float:
    """Of the session that copies all rows to nowhere."""
    pid, before = source.info.backend_pid, processes.cpu_seconds(source.info.backend_pid)
    source.execute("copy (select * from bench_rows) to '/dev/null'")
    return processes.cpu_seconds(pid) - before


def _copy_bytes(proxy: ByteCount, dsn: str) -> int:
    """What leaves the source when all rows are copied."""
    with psycopg.connect(dsn) as source, source.cursor().copy("copy (select * from bench_rows) to stdout") as copy:
        before = proxy.sent
        for _ in copy:
            pass
        return proxy.sent - before


def _verify(server: PipelineServer, dsn: str, source: Connection) -> tuple[float, float, float]:
    """Compare, to its end; CPU seconds of its sessions at the source and at the log, and its own peak of memory.

    A session's parallel workers are sessions of its name.
    """
    environment = {**server.environment, "PIPELINE_SOURCE_DSN": dsn}
    command = [*COMMAND, "verify", "--content", "public.bench_rows", "--json"]
    cpu: dict[tuple[str, int], float] = {}
    megabytes, deadline = 0.0, time.monotonic() + LIMIT
    with processes.running(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.poll() is None and time.monotonic() < deadline:
            for pid, database in source.execute(_SESSIONS).fetchall():
                cpu[database, pid] = max(cpu.get((database, pid), 0.0), processes.cpu_seconds(pid))
            megabytes = max(megabytes, peak_megabytes(process.pid))
            time.sleep(_LOOK)
        said, failed = process.communicate()
    if process.returncode:
        raise BenchmarkFailed(f"`pipeline verify --content` ended with {process.returncode}: {failed[-300:]} {said}")
    of_source, of_log = (
        sum(seconds for (database, _), seconds in cpu.items() if database == name)
        for name in (SOURCE_DATABASE, DATABASE)
    )
    return of_source, of_log, megabytes


def _add(rows: int, found: list[Found], figures: Table) -> None:
    millions = rows / 1e6
    figures.add(NAME, "snapshot of the rows: s", [each.snapshot for each in found], "{:.1f}")
    figures.add(NAME, "verify --content of them: s", [each.seconds for each in found], "{:.1f}")
    shares = [each.seconds / each.snapshot for each in found]
    figures.add(NAME, "verify ÷ snapshot, time", shares, "{:.2f}", most=OF_SNAPSHOT)
    figures.add(NAME, "COPY to nowhere: CPU s per 1 M rows", [each.copy_cpu / millions for each in found], "{:.2f}")
    figures.add(NAME, "verify: source's session: CPU s per 1 M rows", [each.cpu / millions for each in found], "{:.2f}")
    figures.add(
        NAME, "verify: log's session: CPU s per 1 M rows", [each.log_cpu / millions for each in found], "{:.2f}"
    )
    figures.add(
        NAME, "verify ÷ COPY, CPU at the source", [each.cpu / each.copy_cpu for each in found], "{:.2f}", most=OF_CPU
    )
    figures.add(NAME, "COPY: MB from the source", [each.copy_bytes / 1e6 for each in found], "{:.1f}")
    figures.add(NAME, "verify: MB from the source", [each.bytes / 1e6 for each in found], "{:.3f}")
    shares = [each.bytes / each.copy_bytes for each in found]
    figures.add(NAME, "verify ÷ COPY, bytes from the source", shares, "{:.5f}", most=OF_BYTES)
    figures.add(NAME, "verify: peak MB", [each.megabytes for each in found], below=MEGABYTES)


def _say(where: str, found: Found, others: float) -> None:
    quiet = "" if others < QUIET_CORES else ": NOT QUIET, repeat it"
    print(
        f"{where}: snapshot {found.snapshot:.1f} s, verify {found.seconds:.1f} s; CPU s: COPY {found.copy_cpu:.2f}, "
        f"verify at the source {found.cpu:.2f}, at the log {found.log_cpu:.2f}; MB from the source: COPY "
        f"{found.copy_bytes / 1e6:.1f}, verify {found.bytes / 1e6:.3f}; other programs took {others:.2f} cores{quiet}",
        flush=True,
    )
