"""Who drains a copy of the slot: the pipeline into indexed rows, pg_recvlogical into a file, Debezium into nothing."""

from __future__ import annotations

import re
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
from tests.benchmarks.debezium import DebeziumJava
from tests.benchmarks.errors import BenchmarkFailed
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
            wait_for_events(server, database, backlog.changes)
            seconds = time.monotonic() - started
            cpu, megabytes = usage.cpu(), usage.megabytes()
            _verify(database, backlog)
            server.require_steady()
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
        self._java = DebeziumJava(folder)
        self._classes = folder
        self.name = f"{self._java.name}, thrown away"

    def drain(self, cluster: Cluster, backlog: Backlog, slot: str) -> Drain:
        command = self._java.command("Drain", (backlog.changes, int(LIMIT)), cluster, slot, {})
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


def wait_for_events(server: PipelineServer, database: Connection, changes: int) -> None:
    """Until so many events are visible. Raises BenchmarkFailed when the server ends, or after LIMIT seconds."""
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
