"""docs/examples/async_users: a program that adds users, a load, and three followers that have them all in the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from pipeline.postgres.embedded import wheel_bin_dir
from tests.fixtures.postgres import Cluster, free_port
from tests.fixtures.served_follower import SHARED, SharedServer
from tests.fixtures.server import ROOT, environment
from tests.fixtures.waiting import eventually

FOLDER = ROOT / "docs" / "examples" / "async_users"
pytestmark = pytest.mark.xdist_group(SHARED)
COMMANDS: list[str] = re.findall(r"^\$ (.*)$", (FOLDER / "README.md").read_text(), re.MULTILINE)


class Example:
    """Runs lines of its README."""

    def __init__(self, folder: Path, given: dict[str, str]) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], str(wheel_bin_dir(18))])
        self._environment = {**environment({}), "PATH": path, **given}
        self._folder = folder

    def run(self, *words: str, more: str = "", status: int = 0) -> str:
        """Those with all of these words, until their end."""
        said = ""
        for line in self._lines(*words):
            done = subprocess.run(
                ["bash", "-c", f"{line} {more}"],
                cwd=ROOT,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            assert done.returncode == status, done
            said += done.stdout
        return said

    @contextmanager
    def running(self, word: str, port: int) -> Iterator[None]:
        """One that runs on, on another port."""
        [line] = self._lines(word)
        log = self._folder / "app.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec env {line.replace('8000', str(port))}"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            eventually(lambda: httpx.get(f"http://127.0.0.1:{port}/openapi.json").is_success, errors=(httpx.HTTPError,))
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
            print(log.read_text())

    @staticmethod
    def _lines(*words: str) -> list[str]:
        found = [line for line in COMMANDS if all(word in line for word in words)]
        assert found
        return found


@pytest.fixture
def databases(follower_cluster: Cluster) -> Iterator[list[str]]:
    """Three empty ones, which go after their followers."""
    with ExitStack() as stack:
        yield [stack.enter_context(follower_cluster.database(f"users{number}")) for number in (1, 2, 3)]


@pytest.mark.parametrize("requests", [100, pytest.param(10_000, marks=pytest.mark.long)])
def test_no_post_fails_and_all_four_have_the_same_users(
    requests: int, databases: list[str], shared_server: SharedServer, tmp_path: Path
) -> None:
    source_dsn, server, there = shared_server.source.info.dsn, shared_server.server, databases
    given = {f"FOLLOWER{number}_DSN": dsn for number, dsn in enumerate(there, 1)}
    given |= {"SOURCE_DSN": source_dsn, "PIPELINE_URL": f"http://127.0.0.1:{server.port}"}
    given |= {"PIPELINE_SOURCE_DSN": source_dsn, "PIPELINE_DATABASE_DSN": shared_server.log.info.dsn}
    example, port = Example(tmp_path, given), free_port()
    with psycopg.connect(source_dsn, autocommit=True) as source, example.running("uvicorn", port):
        published = "select from pg_publication_tables where tablename = 'users'"
        eventually(lambda: source.execute(published).rowcount == 1)
        assert example.run("followers add").count(" added; it is ") == 3
        said = example.run("load.py", more=f"--url http://127.0.0.1:{port} --requests {requests}")
        print(said)
        assert re.search(rf"^{requests} POSTs in [\d.]+ s, errors: 0$", said, re.MULTILINE)
        assert re.search(r"^peak lag: \d+ changes, [\d.]+ s$", said, re.MULTILINE)
        assert re.search(r"^caught up [\d.]+ s after the last one$", said, re.MULTILINE)
        expected = users(source_dsn)
        assert len(expected) == requests
    for dsn in there:
        eventually(lambda dsn=dsn: users(dsn) == expected)  # type: ignore[misc]


def users(dsn: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute("select id, name, email, made_at from users order by id").fetchall()
