"""The same export on a standalone Spark cluster: a master and two workers out of the PySpark wheel."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from lake.errors import ExportError
from lake.running.cluster import require_answer
from pyspark_sequin_events.dsn import without_password
from tests.fixtures import spark
from tests.fixtures.background import BackgroundThread
from tests.fixtures.postgres import Cluster
from tests.fixtures.server import ROOT
from tests.fixtures.standalone import Standalone, running
from tests.fixtures.waiting import eventually
from tests.torture import export_kills
from tests.torture.export_kills import Exporter

pytestmark = pytest.mark.timeout(1800)
PATIENCE = 300
"""Seconds for what takes some where nothing else runs: three JVMs start, each has classes to compile."""


@pytest.fixture
def standalone() -> Iterator[Standalone]:
    with running() as made:
        yield made


@pytest.mark.long
def test_a_worker_that_is_killed_in_the_middle_leaves_the_export_exact(
    cluster: Cluster, standalone: Standalone
) -> None:
    killed_in_the_middle(cluster, standalone, lambda: os.killpg(standalone.workers[0].pid, signal.SIGKILL))


@pytest.mark.long
def test_so_does_an_executor(cluster: Cluster, standalone: Standalone) -> None:
    killed_in_the_middle(cluster, standalone, lambda: os.kill(standalone.executors()[0], signal.SIGKILL))


@pytest.mark.long
def test_so_does_the_master(cluster: Cluster, standalone: Standalone) -> None:
    killed_in_the_middle(cluster, standalone, lambda: os.killpg(standalone.process.pid, signal.SIGKILL))


def killed_in_the_middle(cluster: Cluster, standalone: Standalone, kill: Callable[[], None]) -> None:
    with export_kills.log_on(cluster) as log:
        log.grow(9_000)
        exporter = Exporter(log, master=standalone.master, environment=standalone.environment)
        eventually(lambda: exporter.done() > 0 or exporter.process.poll() is not None, timeout=PATIENCE)
        kill()
        assert exporter.end() == 0, exporter.said[-1:]
        export_kills.require_exact(log)


@pytest.mark.long
def test_a_run_whose_executors_are_all_gone_ends_with_that(cluster: Cluster, standalone: Standalone) -> None:
    with export_kills.log_on(cluster) as log:
        log.grow(9_000)
        given = {**standalone.environment, "PIPELINE_SPARK": '{"spark.pipeline.waitForCores": "8s"}'}
        exporter = Exporter(log, master=standalone.master, environment=given)
        eventually(lambda: exporter.done() > 0 or exporter.process.poll() is not None, timeout=PATIENCE)
        for worker in standalone.workers:
            os.killpg(worker.pid, signal.SIGKILL)
        assert exporter.end() == 1
        reason = exporter.said[-1]["reason"]
        assert reason.startswith(("the export waits for cores", "executors end")), reason
        export_kills.require_nothing_wrong(log, "without executors")


@pytest.mark.long
def test_a_run_whose_server_is_killed_ends_with_its_application(
    cluster: Cluster, standalone: Standalone, tmp_path: Path
) -> None:
    with export_kills.log_on(cluster) as log:
        log.grow(30_000)
        command = [sys.executable, str(ROOT / "spark/export.py"), "--export-dir", str(log.lake)]
        command += ["--master", standalone.master, "--rows-per-file", "300"]
        given = {**standalone.environment, "PIPELINE_DATABASE_DSN": log.dsn}
        code = f"""import pathlib; from pipeline.exports import child
script = child.SparkScript({command!r}, {given!r}, pathlib.Path({str(tmp_path / "log")!r}), 600)
child.run(script, print, lambda: False)"""
        server = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL)
        drivers = eventually(lambda: running_with(str(log.lake)), timeout=PATIENCE)
        eventually(standalone.executors, timeout=PATIENCE)
        server.kill()
        server.wait()
        killed = time.monotonic()
        eventually(lambda: not standalone.executors() and not running_with(str(log.lake)), timeout=60)
        assert drivers and time.monotonic() - killed < 5
        export_kills.require_equal(log)


def running_with(argument: str) -> list[int]:
    """Processes with an argument that has this in it; the server's own code has it, too."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if argument.encode() in words:
                found.append(int(path.parent.name))
    return found


def failed(cluster: Cluster, standalone: Standalone, settings: dict[str, str]) -> tuple[str, Exporter]:
    """The reason of a run with these settings of Spark."""
    with export_kills.log_on(cluster) as log:
        log.grow(10)
        given = {**standalone.environment, "PIPELINE_SPARK": json.dumps(settings)}
        exporter = Exporter(log, master=standalone.master, environment=given)
        assert exporter.end() == 1
        assert log.visible() == []
    reason = str(exporter.said[-1]["reason"])
    print(reason)
    assert "\n" not in reason
    assert "None.org.apache" not in reason
    return reason, exporter


@pytest.mark.long
def test_each_cause_has_its_reason(cluster: Cluster, standalone: Standalone, tmp_path: Path) -> None:
    reason, exporter = failed(
        cluster, standalone, {"spark.executor.memory": "64g", "spark.pipeline.waitForCores": "12s"}
    )
    assert reason.startswith(
        f"the export waits for cores: the Spark master {standalone.master} has given it none for 12 s"
    )
    assert "spark.cores.max" in reason and "spark.pipeline.waitForCores" in reason
    assert [event["event"] for event in exporter.said if event["event"] == "cores"] == ["cores"]

    reason, _ = failed(cluster, standalone, {"spark.executor.extraJavaOptions": "-javaagent:/nowhere.jar"})
    assert reason == (
        "executors end as soon as they start: Command exited with code 1; see their standard error, in the work folder "
        "of each worker"
    )

    reason, _ = failed(cluster, standalone, {"spark.pyspark.python": "/nowhere/python"})
    assert 'on 127.0.0.1: IOException: Cannot run program "/nowhere/python"' in reason
    assert "PYSPARK_PYTHON" in reason

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    bare = str(tmp_path / "bare/bin/python")
    reason, _ = failed(cluster, standalone, {"spark.pyspark.python": bare})
    assert f"on {platform.node()}, with {bare}: ModuleNotFoundError: No module named" in reason
    assert "install pyarrow and adbc-driver-postgresql" in reason


@pytest.mark.long
def test_no_password_crosses_the_network(cluster: Cluster, standalone: Standalone) -> None:
    secret = "4711-not-to-be-seen"
    try:
        sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
    except PermissionError:
        pytest.skip("only root sees what crosses the network: left out")
    with sniffer, export_kills.log_on(cluster) as log:
        sniffer.bind(("lo", 0))
        log.grow(2_000)
        log.dsn = make_conninfo(log.dsn, password=secret)
        with Sniffing(sniffer) as sniffing:
            exporter = Exporter(log, master=standalone.master, environment=standalone.environment)
            assert exporter.end() == 0, exporter.said[-1:]
        log.dsn = without_password(log.dsn)
        export_kills.require_exact(log)
    assert b"CoarseGrainedExecutorBackend" in sniffing.seen  # it does see what Spark sends
    assert secret.encode() not in sniffing.seen


class Sniffing(BackgroundThread):
    """Keeps what crosses the loopback interface."""

    def __init__(self, sniffer: socket.socket) -> None:
        super().__init__()
        self._sniffer = sniffer
        self.seen = bytearray()

    def work(self) -> None:
        self._sniffer.settimeout(0.2)
        while not self.stopped.is_set():
            with suppress(TimeoutError):
                self.seen += self._sniffer.recv(2**17)


@pytest.mark.long
def test_a_run_leaves_nothing_in_the_temporary_folder(cluster: Cluster, tmp_path: Path) -> None:
    left = tmp_path / "pipeline-spark-999999999-killed"
    left.mkdir()
    environment = {**spark.environment(), "TMPDIR": str(tmp_path)}
    with export_kills.log_on(cluster) as log:
        log.grow(100)
        exporter = Exporter(log, environment=environment)
        exporter.begun.wait(PATIENCE)
        [folder] = tmp_path.iterdir()
        eventually(lambda: any(entry.name.startswith("blockmgr-") for entry in folder.iterdir()), PATIENCE)
        assert exporter.end() == 0, exporter.said[-1:]
    eventually(lambda: list(tmp_path.iterdir()) == [], PATIENCE)


SHOWN = """
import json, sys
import pathlib
from lake.running.cluster import session
with session("local[1]", "ours") as spark:
    pid = str(spark.sparkContext._jvm.ProcessHandle.current().pid())
    assert b"not-to-be-seen" not in pathlib.Path("/proc", pid, "cmdline").read_bytes()
    conf = dict(spark.sparkContext.getConf().getAll())
    print(json.dumps({name: conf.get(name) for name in sys.argv[1:]}))
"""


@pytest.mark.long
def test_what_we_prefer_are_defaults(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.log.level WARN\nspark.app.name theirs\nspark.cores.max 9\n")
    given = {
        "spark.cores.max": "2",
        "spark.my.secret": "not-to-be-seen",
        "spark.driver.memory": "600m",
        "spark.sql.session.timeZone": "Europe/Berlin",
    }
    listens = ("spark.driver.host", "spark.driver.bindAddress")
    names = (*listens, "spark.log.level", "spark.app.name", "spark.ui.enabled", "spark.sql.session.timeZone", *given)
    done = subprocess.run(
        [sys.executable, "-c", SHOWN, *names],
        env={
            **spark.environment(),
            "PYTHONPATH": str(ROOT / "spark"),
            "SPARK_CONF_DIR": str(tmp_path),
            "SPARK_LOCAL_IP": "",
            "PIPELINE_SPARK": json.dumps(given),
        },
        stdout=subprocess.PIPE,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "WARN",
        "spark.app.name": "theirs",
        "spark.ui.enabled": "false",
        "spark.cores.max": "2",
        "spark.my.secret": "not-to-be-seen",
        "spark.driver.memory": "600m",
        "spark.sql.session.timeZone": "UTC",
    }


def test_yarn_without_its_configuration_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ExportError, match="neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set; set one"):
        require_answer("yarn")


def test_a_master_that_does_not_answer_is_named_at_once(cluster: Cluster) -> None:
    with export_kills.log_on(cluster) as log:
        log.grow(10)
        with socket.socket() as bound:  # no other process takes the port, and none listens there
            bound.bind(("127.0.0.1", 0))
            master = f"spark://127.0.0.1:{bound.getsockname()[1]}"
            exporter = Exporter(log, master=master)
            assert exporter.end() == 1
        reason = exporter.said[-1]["reason"]
        assert f"the Spark master {master} does not answer: Connection refused" in reason
        assert "PIPELINE_SPARK_MASTER" in reason
        assert log.visible() == []
