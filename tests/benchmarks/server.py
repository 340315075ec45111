"""The product under measurement: the real `python -m pipeline serve`, over TCP, on its own pipeline database."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from psycopg import Connection

from pipeline.postgres.embedded import EmbeddedServer
from tests.benchmarks import processes
from tests.benchmarks.backlog import SOURCE_DATABASE
from tests.benchmarks.errors import BenchmarkFailed
from tests.fixtures.postgres import Cluster, free_port
from tests.fixtures.processes import children, title

DATABASE = "pipeline"
COMMAND = (sys.executable, "-m", "pipeline")
REPOSITORY = Path(__file__).resolve().parents[2]
START_TIMEOUT = 60.0
STOP_GRACE = 40.0


class PipelineServer:
    """A running server and what can be seen of it from outside."""

    def __init__(
        self,
        cluster: Cluster,
        databases: Cluster,
        slot: str,
        process: subprocess.Popen[str],
        log: Path,
        http_port: int,
        environment: Mapping[str, str],
    ) -> None:
        self.cluster = cluster
        self.databases = databases
        self.slot = slot
        self.process = process
        self.log = log
        self.http_port = http_port
        self.environment = environment
        """With which it was started: what a command beside it needs."""

    def run(self, *arguments: str) -> None:
        """`pipeline` with these arguments beside it, to its end. Raises BenchmarkFailed when it fails."""
        command = [*COMMAND, *arguments]
        done = subprocess.run(command, env=dict(self.environment), capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchmarkFailed(
                f"`pipeline {' '.join(arguments)}` ended with {done.returncode}: {done.stderr[-300:]}"
            )

    def wait_active(self, source: Connection) -> int:
        """The pid of the walsender, as soon as the slot is read."""
        return wait_active(source, self.slot, self.require_alive)

    def require_alive(self) -> None:
        """Raises BenchmarkFailed with the end of the log when the server has ended."""
        if self.process.poll() is not None:
            raise BenchmarkFailed(f"`pipeline serve` ended with {self.process.returncode}: {self.log_tail()}")

    def role(self, name: str) -> int:
        """The pid of a role's process."""
        for fork_server in children(self.process.pid):
            for pid in children(fork_server):
                if title(pid) == f"pipeline: {name}":
                    return pid
        raise BenchmarkFailed(f"no process of role {name}: {self.log_tail()}")

    def require_steady(self) -> None:
        """Raises BenchmarkFailed when the supervisor had to start a role again, with what the log says around it."""
        lines = self.log.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            if "starts again" in line:
                raise BenchmarkFailed(f"a role was restarted: {' | '.join(lines[max(0, number - 3) : number + 1])}")

    def log_tail(self) -> str:
        return tail(self.log)


@contextmanager
def durable_server() -> Iterator[Cluster]:
    """A Postgres as one would run it, with a TCP port, in a folder that is gone after the block."""
    folder = Path(tempfile.mkdtemp(prefix="wal-bench-pg-"))
    server = EmbeddedServer(folder / "postgres", port=free_port())
    try:
        server.start()
        yield Cluster(server.dsn("postgres"), server)
    finally:
        server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def serve(
    cluster: Cluster,
    slot: str,
    prepare: Callable[[Cluster], None] = lambda _: None,
    settings: Mapping[str, str] | None = None,
    databases: Cluster | None = None,
) -> Iterator[PipelineServer]:
    """A server on a fresh pipeline database; both are gone after the block.

    `prepare` may do something to that database before the server starts; `settings` go over its environment.
    `databases` is where that database is, when it is not where the source is.
    """
    databases = databases or cluster
    databases.drop(DATABASE)
    databases.create(DATABASE)
    prepare(databases)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="wal-bench-serve-") as folder:
        log = Path(folder) / "serve.log"
        environment = _environment(cluster, databases, slot, port) | dict(settings or {})
        try:
            with (
                log.open("w") as output,
                processes.running(
                    [*COMMAND, "serve"],
                    grace=STOP_GRACE,
                    cwd=folder,
                    env=environment,
                    stdout=output,
                    stderr=output,
                ) as process,
            ):
                yield PipelineServer(cluster, databases, slot, process, log, port, environment)
        finally:
            databases.drop(DATABASE)


def wait_active(source: Connection, slot: str, require_alive: Callable[[], None]) -> int:
    """Return the pid of the walsender once the slot is read; `require_alive` raises if that cannot happen."""
    deadline = time.monotonic() + START_TIMEOUT
    query = "select active_pid from pg_replication_slots where slot_name = %s"
    while time.monotonic() < deadline:
        row = source.execute(query, (slot,)).fetchone()
        if row is not None and row[0] is not None:
            return int(row[0])
        require_alive()
        time.sleep(0.005)
    raise BenchmarkFailed(f"no session reads slot {slot} after {START_TIMEOUT:.0f} s")


def tail(log: Path, lines: int = 5) -> str:
    """The end of a log, in one line."""
    return " | ".join(log.read_text(errors="replace").splitlines()[-lines:])


def _environment(cluster: Cluster, databases: Cluster, slot: str, http_port: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIPELINE_")}
    return {
        **kept,
        "PYTHONPATH": str(REPOSITORY),
        "PIPELINE_SOURCE_DSN": cluster.tcp_dsn(SOURCE_DATABASE),
        "PIPELINE_DATABASE_DSN": databases.tcp_dsn(DATABASE),
        "PIPELINE_SLOT": slot,
        "PIPELINE_HTTP_PORT": str(http_port),
        "PIPELINE_GRPC_PORT": "off",
        "PIPELINE_LOG_FORMAT": "text",
        "PIPELINE_EXPORT_SCHEDULE": "off",
    }
