"""What `pipeline check` says of a Spark cluster: a master that listens or not, and a page that tells its version."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata

import pytest

from pipeline.config import settings
from pipeline.exports import spark_cluster
from pipeline.findings import CheckFinding
from tests.fixtures.postgres import free_port


@contextmanager
def page(version: str) -> Iterator[int]:
    """A master's UI, as Spark writes it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f'<span class="version" style="margin-right: 15px;">{version}</span>'.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as master:
        yield master.getsockname()[1]


def findings(master: str, dsn: str = "host=db.example.com dbname=x", **spark: str) -> list[CheckFinding]:
    return list(spark_cluster.run(settings.load(spark_master=master, database_dsn=dsn, spark=spark)))


def test_spark_on_this_machine_is_not_asked_for() -> None:
    assert findings("local[*]") == findings("local-cluster[2,1,1024]") == []


def test_a_master_of_our_version(port: int) -> None:
    ours = metadata.version("pyspark")
    with page(ours) as ui:
        [found] = findings(f"spark://127.0.0.1:{port}", **{"spark.master.ui.port": str(ui)})
    assert (found.level, found.text) == (
        "ok",
        f"the Spark master answers; its version is {'.'.join(ours.split('.')[:2])}, like PySpark here",
    )


def test_a_master_of_another_version(port: int) -> None:
    with page("3.5.7") as ui:
        [found] = findings(f"spark://127.0.0.1:{port}", **{"spark.master.ui.port": str(ui)})
    assert found.level == "warning"
    assert found.text.startswith("the Spark master is of version 3.5, PySpark here of ")
    assert found.remedy == "install pyspark==3.5.* here, or upgrade the cluster"


def test_a_spark_master_without_version_or_answer_is_reported(port: int) -> None:
    master = f"spark://127.0.0.1:{port},127.0.0.1:{free_port()}"
    unknown, silent = findings(master, **{"spark.master.ui.port": str(free_port())})
    assert (unknown.level, unknown.text.partition(";")[0]) == ("ok", "the Spark master answers")
    assert silent.level == "warning"
    assert silent.text.endswith("does not answer: Connection refused")


@pytest.mark.parametrize(
    ("dsn", "here"),
    [
        ("host=/var/run/postgresql dbname=x", True),
        ("dbname=x", True),
        ("postgresql://localhost/x", True),
        ("host=127.0.0.5,::1 dbname=x", True),
        ("host=localhost,db.example.com dbname=x", False),
        ("host=localhost hostaddr=10.0.0.7", False),
        ("service=pipeline", False),
        ("postgresql://10.0.0.7/x", False),
    ],
)
def test_a_database_that_only_this_machine_reaches(dsn: str, here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGHOST", raising=False)
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    found = [each.text for each in findings("yarn", dsn)]
    assert [text.startswith("only this machine reaches the pipeline database") for text in found] == [True] * here


def test_a_clear_text_password_and_yarn_without_configuration_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)
    yarn, password = findings("yarn", "postgresql://u:geheim@10.0.0.7/x")
    assert (yarn.level, "neither HADOOP_CONF_DIR nor YARN_CONF_DIR" in yarn.text) == ("warning", True)
    assert password.text == "executors get no password, since Spark would send it in clear"
    assert "geheim" not in f"{yarn}{password}"
    encrypted = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    assert len(findings("yarn", "postgresql://u:geheim@10.0.0.7/x", **encrypted)) == 1
