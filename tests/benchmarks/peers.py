"""Others who drain a copy of the slot: pg_recvlogical into a file, Postgres into a count, Debezium into nothing."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.postgres.embedded import wheel_bin_dir
from tests.benchmarks import processes
from tests.benchmarks.backlog import PUBLICATION, SOURCE_DATABASE, Backlog
from tests.benchmarks.contenders import LIMIT, Drain
from tests.benchmarks.debezium import DebeziumJava
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.server import tail, wait_active
from tests.fixtures.postgres import Cluster
from tests.fixtures.processes import peak_megabytes

_LOOK = 0.2
"""Seconds between two looks at a peer's memory."""
SNAPSHOT = {"snapshot.mode": "initial", "snapshot.max.threads": 2}
"""One more than by default: as many as there are cores, and as our server has."""


class Decoding:
    """Postgres alone: what its decoding takes, nothing sent. Clock: the statement."""

    name = "decoding alone, counted"

    def drain(self, cluster: Cluster, backlog: Backlog, slot: str) -> Drain:
        with cluster.connect(SOURCE_DATABASE) as source:
            started = time.monotonic()
            row = source.execute(
                "select count(*) from pg_logical_slot_peek_binary_changes(%s, %s, null, 'proto_version', '1',"
                " 'messages', 'true', 'publication_names', %s)",
                (slot, backlog.end, PUBLICATION),
            ).fetchone()
            seconds = time.monotonic() - started
        if row is None or row[0] < backlog.changes:
            raise BenchmarkFailed(f"{row} messages for {backlog.changes} changes were decoded")
        return Drain(seconds)


class RecvLogical:
    """pg_recvlogical to a file. Clock: its whole life, some 20 ms of start included."""

    name = "pg_recvlogical, to a file"

    def drain(self, cluster: Cluster, backlog: Backlog, slot: str) -> Drain:
        with tempfile.TemporaryDirectory(prefix="wal-bench-recv-") as folder:
            output, errors_to = Path(folder) / "changes", Path(folder) / "stderr"
            command = [
                wheel_bin_dir() / "pg_recvlogical", "--start", "--no-loop", "--slot", slot,
                "--dbname", cluster.tcp_dsn(SOURCE_DATABASE), "--file", output, "--endpos", backlog.end,
                "--option", "proto_version=1", "--option", "messages=true",
                "--option", f"publication_names={PUBLICATION}",
            ]  # fmt: skip
            started = time.monotonic()
            with errors_to.open("w") as stderr, processes.running(command, stderr=stderr) as process:
                megabytes = _wait(process, errors_to)
                seconds = time.monotonic() - started
            if output.stat().st_size < 30 * backlog.changes:
                raise BenchmarkFailed(f"pg_recvlogical wrote only {output.stat().st_size} bytes")
        return Drain(seconds, megabytes={"pg_recvlogical": megabytes})


class Debezium:
    """Debezium Embedded into a consumer that throws away. Clock: from its first batch to the last change."""

    def __init__(self, folder: Path) -> None:
        """Compile the consumer into `folder`. Raises CannotRun without a JDK or without Debezium's jars."""
        self._java = DebeziumJava(folder)
        self._classes = folder
        self.name = f"{self._java.name}, thrown away"

    def drain(self, cluster: Cluster, backlog: Backlog, slot: str) -> Drain:
        log = self._classes / "stderr"
        with cluster.connect(SOURCE_DATABASE) as source, self._running(cluster, slot, backlog.changes, {}) as process:
            wait_active(source, slot, lambda: _require_running(process, log))
            started = time.monotonic()
            megabytes = _wait(process, log)
            from_active = time.monotonic() - started
            result = self._said(process, backlog.changes)
        return Drain(float(result[3]), from_active, float(result[4]), {"Debezium's JVM": megabytes})

    def snapshot(self, cluster: Cluster, rows: int, slot: str) -> Drain:
        """So many rows that were there before, by its initial snapshot; the slot, which it makes, is left behind."""
        with self._running(cluster, slot, rows, SNAPSHOT) as process:
            megabytes = _wait(process, self._classes / "stderr")
            result = self._said(process, rows)
        return Drain(float(result[3]), None, float(result[4]), {"Debezium's JVM": megabytes})

    @contextmanager
    def _running(
        self, cluster: Cluster, slot: str, changes: int, settings: Mapping[str, object]
    ) -> Iterator[subprocess.Popen[str]]:
        command = self._java.command("Drain", (changes, int(LIMIT)), cluster, slot, settings)
        with (
            (self._classes / "stderr").open("w") as stderr,
            processes.running(command, stdout=subprocess.PIPE, stderr=stderr) as process,
        ):
            yield process

    @staticmethod
    def _said(process: subprocess.Popen[str], changes: int) -> re.Match[str]:
        assert process.stdout is not None
        said = process.stdout.read()
        result = re.search(r"changes=(\d+) bytes=(\d+) seconds=([\d.]+) warm=(\d+)", said)
        if result is None or int(result[1]) != changes:
            raise BenchmarkFailed(f"Debezium handed over {said.strip() or 'nothing'}; {changes} were expected")
        return result


def _wait(process: subprocess.Popen[str], log: Path) -> float:
    """Until it has ended; the most megabytes it had."""
    deadline, megabytes = time.monotonic() + LIMIT, 0.0
    while process.poll() is None and time.monotonic() < deadline:
        megabytes = max(megabytes, peak_megabytes(process.pid))
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK)
    if process.poll() is None:
        raise BenchmarkFailed(f"not done after {LIMIT:.0f} s: {tail(log)}")
    if process.returncode:
        raise BenchmarkFailed(f"{Path(str(process.args[0])).name} ended with {process.returncode}: {tail(log)}")  # type: ignore[index]
    return megabytes


def _require_running(process: subprocess.Popen[str], log: Path) -> None:
    if process.poll() is not None:
        raise BenchmarkFailed(f"it ended with {process.returncode} without reading the slot: {tail(log)}")
