"""The server where it has no name, no home, no root to write to, and a temporary folder that runs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.fixtures.confined import UNKNOWN, read_only, unknown_user
from tests.fixtures.server import COMMAND, COMMAND_TIMEOUT, ROOT, Serving, environment
from tests.fixtures.small_log import small_log
from tests.fixtures.waiting import eventually

ENTRY = ROOT / "deploy" / "docker" / "pipeline"
NSS_WRAPPER = [*Path("/usr/lib").glob("*/libnss_wrapper.so")]
needs_nss_wrapper = pytest.mark.skipif(not NSS_WRAPPER, reason="Debian's libnss-wrapper is not installed")
START = """
import sys
from pathlib import Path
from pipeline.errors import EmbeddedPostgresError
from pipeline.postgres.embedded import EmbeddedServer
from setproctitle import setproctitle
setproctitle("a title that is longer than the command was, so that it needs the room of the environment" * 9)
server = EmbeddedServer(Path(sys.argv[1]), settings={"fsync": "off"})
try:
    print(server.start())
    server.stop()
except EmbeddedPostgresError as error:
    print(error)
"""


def replicates(serving: Serving, source: psycopg.Connection, log: psycopg.Connection) -> bool:
    source.execute("insert into t values (1)")
    eventually(lambda: log.execute("select from sequin_events where action = 'insert'").rowcount == 1)
    return serving.stop() == 0


def entry(folder: Path, *becomes: str) -> str:
    """The entry point of the image, which becomes another program here."""
    script = folder / "pipeline"
    script.write_text(ENTRY.read_text().replace("/opt/pipeline/bin/pipeline", " ".join(becomes)))
    return str(script)


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """Away from a file of another test run, and with a folder for temporary files that each may have."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "NSS_WRAPPER_PASSWD": str(tmp_path / "passwd")}


def test_a_user_without_a_name_or_home_serves_with_dsns(
    serve: Callable[..., Serving], source: psycopg.Connection, log: psycopg.Connection
) -> None:
    assert replicates(serve(prefix=unknown_user()), source, log)


def test_a_server_needs_to_write_only_its_data_directory(
    serve: Callable[..., Serving], source: psycopg.Connection, log: psycopg.Connection, tmp_path: Path
) -> None:
    (data := tmp_path / "data").mkdir()
    (temporary := tmp_path / "temporary").mkdir()
    assert replicates(serve(prefix=read_only(data, noexec=temporary), data_dir=data), source, log)


def test_the_embedded_postgres_says_that_it_needs_a_name(server_directory: Path) -> None:
    command = [*unknown_user(), sys.executable, "-c", START, str(server_directory)]
    said = subprocess.check_output(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True)
    assert f"user ID {UNKNOWN}: user does not exist; add this user to /etc/passwd, or set the two DSNs" in said


@needs_nss_wrapper
def test_the_image_gives_a_user_a_name(server_directory: Path, tmp_path: Path, variables: dict[str, str]) -> None:
    (program := tmp_path / "start.py").write_text(START)
    command = [*unknown_user(), "sh", entry(tmp_path, sys.executable, str(program)), str(server_directory)]
    assert subprocess.check_output(command, env=variables, text=True) == "True\n"
    assert (tmp_path / "passwd").read_text().endswith(f"\npipeline-{UNKNOWN}:x:{UNKNOWN}:0::/:/bin/sh\n")


@pytest.mark.timeout(2 * COMMAND_TIMEOUT)
def test_an_export_needs_no_root_to_write_to_and_runs_nothing_in_tmp(database_dsn: str, tmp_path: Path) -> None:
    (data := tmp_path / "data").mkdir()
    (temporary := tmp_path / "temporary").mkdir()
    confined = read_only(data, noexec=temporary)
    given = environment({"database_dsn": database_dsn, "data_dir": data, "spark_master": "local[2]"})
    java = f"{os.environ['JDK_JAVA_OPTIONS']} -Djava.io.tmpdir={temporary}"
    with small_log(database_dsn, 1000):
        subprocess.run(
            [*confined, *COMMAND, "export", "run"],
            cwd=tmp_path,
            env={**given, "TMPDIR": str(temporary), "SPARK_LOCAL_DIRS": str(temporary), "JDK_JAVA_OPTIONS": java},
            check=True,
            timeout=COMMAND_TIMEOUT,
        )
    assert [*data.glob("exports/current/public.orders/**/*.parquet")]


@pytest.mark.long
@needs_nss_wrapper
def test_the_image_exports_for_a_user_without_a_name(
    database_dsn: str, tmp_path: Path, variables: dict[str, str]
) -> None:
    given = environment({"database_dsn": database_dsn, "data_dir": tmp_path / "data", "spark_master": "local[2]"})
    command = ["sh", entry(tmp_path, *COMMAND), "export", "run"]
    with small_log(database_dsn, 1000):
        refused = subprocess.run(
            [*unknown_user(), *COMMAND, "export", "run"], cwd=tmp_path, env=given, capture_output=True, text=True
        )
        assert f"user {UNKNOWN} has no entry in /etc/passwd, and Spark needs one" in refused.stderr
        subprocess.run([*unknown_user(), *command], cwd=tmp_path, env={**variables, **given}, check=True)
    assert [*tmp_path.glob("data/exports/current/public.orders/**/*.parquet")]
