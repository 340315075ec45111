"""The same export on a standalone Spark cluster: a master and two workers out of the PySpark wheel."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from tests.fixtures import spark
from tests.fixtures.postgres import Cluster, free_port
from tests.fixtures.waiting import eventually
from tests.torture import export_kills
from tests.torture.export_kills import Exporter

SPARK_HOME = Path(pyspark.__file__).parent


@dataclass(frozen=True)
class Standalone:
    """A running cluster; `workers` are process groups, each with the executors that it has started."""

    master: str
    workers: list[subprocess.Popen[bytes]]
    environment: dict[str, str]


@contextmanager
def daemon(environment: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [str(SPARK_HOME / "bin/spark-class"), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def standalone() -> Iterator[Standalone]:
    port = free_port()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="wal-spark-"))
        environment = {
            **spark.environment(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": folder,
        }
        classes = "org.apache.spark.deploy"
        address = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        stack.enter_context(daemon(environment, f"{classes}.master.Master", *address))
        eventually(lambda: socket.create_connection(("127.0.0.1", port), 1).close(), errors=(OSError,), timeout=40)
        master = f"spark://127.0.0.1:{port}"
        size = ("--cores", "1", "--memory", "600m", "--host", "127.0.0.1", "--webui-port", "0")
        workers = [
            stack.enter_context(daemon(environment, f"{classes}.worker.Worker", *size, master)) for _ in range(2)
        ]
        yield Standalone(master, workers, {**environment, "SPARK_EXECUTOR_MEMORY": "500m"})


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_worker_that_is_killed_in_the_middle_leaves_the_export_exact(
    cluster: Cluster, standalone: Standalone
) -> None:
    with export_kills.log_on(cluster) as log:
        log.grow(9_000)
        exporter = Exporter(log, master=standalone.master, environment=standalone.environment)
        eventually(lambda: exporter.done() > 0 or exporter.process.poll() is not None, timeout=90)
        os.killpg(standalone.workers[0].pid, signal.SIGKILL)
        assert exporter.end() == 0, exporter.said[-1:]
        export_kills.require_exact(log)


def test_a_master_that_does_not_answer_is_named_at_once(cluster: Cluster) -> None:
    with export_kills.log_on(cluster) as log:
        log.grow(10)
        master = f"spark://127.0.0.1:{free_port()}"
        exporter = Exporter(log, master=master)
        assert exporter.end() == 1
        reason = exporter.said[-1]["reason"]
        assert f"the Spark master {master} does not answer: Connection refused" in reason
        assert "PIPELINE_SPARK_MASTER" in reason
        assert log.visible() == []
