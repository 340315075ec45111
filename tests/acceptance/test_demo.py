"""`pipeline demo` as people start it: in their own folder, with settings that it must ignore."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import pipeline
from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures.data_directories import prepare
from tests.fixtures.server import ROOT
from tests.fixtures.waiting import eventually
from tests.pages.output import difference

VERDICT = "every change arrived once, in order"
SMALL = """
import sys
from pipeline.cli import entry
from pipeline.demo import shop
shop.OLD_CUSTOMERS, shop.OLD_ORDERS = 1_000, 3_000
sys.exit(entry.main())
"""
"""The same command for a shop with a twentieth of the existing rows: `make long` has them all."""
USERS = """
select distinct rolname, rolsuper from pg_stat_activity join pg_roles on pg_roles.oid = usesysid
where datname = 'source' and pid <> pg_backend_pid() and rolname <> 'pipeline_reader'
"""
pytestmark = pytest.mark.timeout(300)  # it ends with an export by Spark


@pytest.fixture
def data_dir(server_directory: Path) -> Path:
    """A short path; what is left running below it is ended."""
    return server_directory.parent / "demo"


@contextmanager
def started(data_dir: Path, folder: Path, seconds: int, *, small: bool) -> Iterator[subprocess.Popen[str]]:
    (folder / "pipeline.toml").write_text("http_port = 'none'\n")
    wrong = {
        "PIPELINE_SOURCE_DSN": "postgresql://missing@127.0.0.1:1/nowhere",
        "PIPELINE_LOG_LEVEL": "deafening",
        "PGHOSTADDR": "127.0.0.1",
        "PYTHONPATH": str(Path(pipeline.__file__).parents[1]),
    }
    program = ("-c", SMALL) if small else ("-m", "pipeline")
    process = subprocess.Popen(
        [sys.executable, *program, "demo", "--seconds", str(seconds), "--data-dir", str(data_dir)],
        cwd=folder,
        env=os.environ | wrong,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finished(data_dir: Path, folder: Path, seconds: int, *, small: bool = False) -> str:
    with started(data_dir, folder, seconds, small=small) as process:
        output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    return output


def test_the_demo_ends_with_its_verdict(data_dir: Path, tmp_path: Path) -> None:
    output = finished(data_dir, tmp_path, 1, small=True)
    assert VERDICT in output
    assert "every commit_lsn as pg_waldump has it" in output
    assert "every event is in the lake, once" in output
    assert not EmbeddedServer(data_dir / "postgres").running()
    assert f"--config {data_dir / 'pipeline.toml'} serve" in output
    assert "http://127.0.0.1:12312/console/" in output
    assert "-U postgres -d pipeline" in output
    assert "-U shop -d source" in output
    assert "superuser" not in (data_dir / "serve.log").read_text()
    assert difference(shown_in_readme(), output) is None


def shown_in_readme() -> list[str]:
    """What the README shows below `make demo`."""
    _, _, shown = (ROOT / "README.md").read_text().partition("\n$ make demo\n")
    assert shown
    return shown.partition("\n```")[0].splitlines()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_it_can_be_repeated(data_dir: Path, tmp_path: Path) -> None:
    for seconds in (4, 2):
        output = finished(data_dir, tmp_path, seconds)
        assert VERDICT in output
        assert "every event is in the lake, once" in output


@pytest.mark.long
def test_after_kill_9_the_next_demo_is_exact(data_dir: Path, tmp_path: Path) -> None:
    with started(data_dir, tmp_path, 60, small=False) as process:
        eventually(lambda: _orders(data_dir) > 20, timeout=200, errors=(psycopg.Error,))
        process.kill()
        process.wait()
    assert VERDICT in finished(data_dir, tmp_path, seconds=2)


@pytest.mark.long
def test_ctrl_c_stops_everything(data_dir: Path, tmp_path: Path) -> None:
    postgres = EmbeddedServer(data_dir / "postgres")
    prepare(postgres.directory, postgres.bin_dir)
    with started(data_dir, tmp_path, 60, small=True) as process:
        eventually(lambda: _orders(data_dir) > 5, timeout=200, errors=(psycopg.Error,))
        eventually(lambda: _superusers(data_dir) == {"pipeline": False, "shop": False})
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=90)
    assert process.returncode == 130
    assert "interrupted" in output
    assert "Traceback" not in output
    assert not postgres.running()


def _orders(data_dir: Path) -> int:
    with psycopg.connect(EmbeddedServer(data_dir / "postgres").dsn("source")) as connection:
        row = connection.execute("select count(*) from shop.orders").fetchone()
    return row[0] if row else 0


def _superusers(data_dir: Path) -> dict[str, bool]:
    """The users of other sessions at the source that stay, and if they are superusers."""
    with psycopg.connect(EmbeddedServer(data_dir / "postgres").dsn("source")) as connection:
        return dict(connection.execute(USERS).fetchall())
