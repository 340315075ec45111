"""`pipeline health`, as a container's HEALTHCHECK runs it."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.cli import health
from pipeline.config.settings import Config
from pipeline.process import heartbeat
from tests.fixtures.api import Api
from tests.fixtures.postgres import free_port
from tests.fixtures.server import COMMAND, Serving, environment, run_command
from tests.fixtures.waiting import eventually


def asked(folder: Path, *arguments: str, **settings: object) -> tuple[int, str]:
    done = run_command("health", *arguments, folder=folder, **settings)
    return done.returncode, (done.stdout + done.stderr).strip()


def test_a_server_that_stands_by_is_alive_but_not_ready(api: Callable[..., Api], tmp_path: Path) -> None:
    known = {"http_port": api().config.http_port}
    assert asked(tmp_path, **known) == (0, "ok")
    assert asked(tmp_path, "--ready", "--only", "api", **known) == (0, "ready")
    status, said = asked(tmp_path, "--ready", **known)
    assert (status, "replication" in said) == (1, True), said


def test_it_reads_the_settings_file_and_takes_flags(api: Callable[..., Api], tmp_path: Path) -> None:
    port = api(http_host="127.0.0.1").config.http_port
    assert asked(tmp_path, "--http-port", str(port), http_port=None) == (0, "ok")
    (tmp_path / "pipeline.toml").write_text(f'http_port = {port}\nhttp_host = "0.0.0.0"\n')
    assert asked(tmp_path, http_port=None) == (0, "ok")
    (tmp_path / "pipeline.toml").write_text("http_port = ")
    status, said = asked(tmp_path, http_port=None)
    assert (status, "is not TOML" in said) == (2, True), said


def test_nobody_answers(tmp_path: Path) -> None:
    port = free_port()
    status, said = asked(tmp_path, http_port=port)
    assert (status, said) == (1, f"no server answers at http://127.0.0.1:{port}: [Errno 111] Connection refused")
    assert asked(tmp_path, http_port="none")[0] == 1


def test_a_role_without_http_leaves_a_sign_of_life_until_it_ends(serve: Callable[..., Serving], tmp_path: Path) -> None:
    shuffle = ("--only", "shuffle")
    assert asked(tmp_path, *shuffle)[0] == 1
    server = serve(arguments=("serve", *shuffle), wait=False)
    eventually(lambda: asked(tmp_path, *shuffle) == (0, "ok"))
    status, said = asked(tmp_path, *shuffle, "--ready")
    assert (status, said) == (
        1,
        "pipeline: a server with --only shuffle reports only that it is alive; leave out --ready",
    )
    path = heartbeat.file(tmp_path / ".pipeline", "shuffle")
    left = path.read_bytes()
    assert server.stop() == 0
    assert not path.exists()
    path.write_bytes(left)  # as a server that was killed leaves it
    assert asked(tmp_path, *shuffle) == (0, "ok")
    old = path.stat().st_mtime - 2 * heartbeat.STALE_SECONDS
    os.utime(path, (old, old))
    status, said = asked(tmp_path, *shuffle)
    assert (status, "is dead or frozen" in said) == (1, True), said


@pytest.mark.long
def test_it_costs_a_fraction_of_another_command(tmp_path: Path) -> None:
    costs = {
        arguments: min(cost(tmp_path, *arguments) for _ in range(3)) for arguments in (("health",), ("--version",))
    }
    assert costs["health",] < 0.4 * costs["--version",], costs


def cost(folder: Path, *arguments: str) -> float:
    """CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*COMMAND, *arguments], cwd=folder, env=environment({}), capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("name", health.DEFAULTS)
def test_its_defaults_are_those_of_the_settings(name: str) -> None:
    default = Config.model_fields[name].default
    assert health.DEFAULTS[name] == ("" if default is None else str(default))
