"""`pipeline followers` as users run it: what is printed, `--json`, exit statuses, and that no password is seen."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fixtures.followers import Adding, asking_for_a_password
from tests.fixtures.postgres import Cluster, bin_dir
from tests.fixtures.processes import title
from tests.fixtures.server import COMMAND, environment, run_command
from tests.fixtures.waiting import eventually

SECRET = "sentinel-30-geheim"
WRONG = "sentinel-30-falsch"
Command = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.xdist_group("followers-commands")


@pytest.fixture
def command(adding: Adding, tmp_path: Path) -> Command:
    """Run `pipeline followers …`; it must end with `status`."""

    def run(*arguments: str, status: int = 0, **settings: object) -> subprocess.CompletedProcess[str]:
        config = adding.known.config
        defaults = {"source_dsn": config.source, "database_dsn": config.database}
        done = run_command("followers", *arguments, folder=tmp_path, **{**defaults, **settings})
        assert done.returncode == status, done
        return done

    return run


@pytest.fixture(scope="module")
def strict() -> Iterator[Cluster]:
    with asking_for_a_password("watched", SECRET) as made:
        yield made


def as_json(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_from_its_beginning_to_its_end(command: Command, follower_dsn: str) -> None:
    assert command("list").stdout == "there are no followers; add one: `pipeline followers add --dsn DSN`\n"
    done = command("add", "reports", "--dsn", follower_dsn, "--tables", "public.orders, public.parted")
    assert done.stdout == (
        'follower "reports" added; it is waiting: no server runs that could apply the log to this follower; '
        "start `pipeline serve`\n"
    )
    found = as_json(command("show", "reports", "--json"))
    assert as_json(command("list", "--json"))["data"][0].keys() == found.keys()
    assert [each["table"] for each in found["tables"]] == ["public.orders", "public.parted"]
    assert as_json(command("pause", "reports", "--json"))["state"] == "paused"
    assert command("pause", "reports", status=1).stderr == 'pipeline: follower "reports" is paused already\n'
    assert command("resume", "reports").stdout == 'follower "reports" resumed\n'
    assert "public.orders   waiting" in command("show", "reports").stdout
    assert command("list").stdout.splitlines()[1].startswith("reports    waiting")
    assert command("remove", "reports").stdout == 'follower "reports" removed; its database stays as it is\n'
    assert "there is no follower" in command("show", "reports", status=1).stderr


def test_a_name_is_made_and_warnings_are_told(command: Command, cluster: Cluster) -> None:
    with cluster.database("beside") as dsn:
        assert command("add", "--dsn", dsn, "--sql").stdout == ""
        done = command("add", "--dsn", dsn, "--json", "--copy", "source", "--schema", "create", "--ddl", "stop")
    found = json.loads(done.stdout)
    assert found["name"].startswith("local-")
    assert found["ddl"] == "stop"
    [warning] = found["warnings"]
    assert done.stderr == f"warning: {warning}\n"


def test_a_fresh_pair_is_told_once_what_to_start(cluster: Cluster, follower_dsn: str, tmp_path: Path) -> None:
    with cluster.database("fresh") as fresh:
        given = ("followers", "add", "--dsn", follower_dsn)
        done = run_command(*given, folder=tmp_path, database_dsn=fresh, source_dsn=follower_dsn)
    assert done.returncode == 1
    assert done.stderr == "pipeline: no source has been replicated from yet; start `pipeline serve` first\n"


def test_what_is_refused_is_one_line(command: Command, follower_dsn: str) -> None:
    for arguments, said in (
        (("--dsn", f"postgresql://me:{SECRET}@db/shop"), "--dsn has a password, which would be stored with it"),
        (("--dsn", follower_dsn, "--truncate", "--copy", "none"), "--truncate empties tables before a copy"),
        (("--dsn", follower_dsn, "--copy", "backup"), "'backup' is not one of 'source', 'log', 'none'"),
        ((f"postgresql://me:{SECRET}@db/shop",), "Missing option '--dsn'"),
        (("reports", f"postgresql://me:{SECRET}@db/shop", "--dsn", follower_dsn), "unexpected extra argument"),
    ):
        done = command("add", *arguments, status=2)
        assert done.stdout == ""
        assert done.stderr.startswith(f"pipeline: {said}") or said in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1
        assert SECRET not in done.stderr


def test_no_password_is_seen_anywhere(
    command: Command, adding: Adding, strict: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert strict.server is not None
    dsn = f"{strict.tcp_dsn('postgres')} user=watched"
    variable = "PIPELINE_FOLLOWER_PASSWORD_REPORTS"
    said = []
    monkeypatch.setenv(variable, WRONG)
    refused = command("add", "reports", "--dsn", dsn, status=1)
    assert 'password authentication failed for user "watched"' in refused.stderr
    assert refused.stderr.rstrip().endswith(variable)
    monkeypatch.setenv(variable, SECRET)
    said += [refused, command("add", "reports", "--dsn", dsn, "--json"), command("show", "reports"), command("list")]
    config = adding.known.config
    databases = {"source_dsn": config.source, "database_dsn": config.database}
    said.append(run_command("status", "--json", folder=tmp_path, **databases))
    assert [each["name"] for each in json.loads(said[-1].stdout)["followers"]] == ["reports"]
    assert "unknown setting" not in str(said)
    dump = [str((bin_dir(18) or Path()) / "pg_dump"), adding.known.config.database]
    dumped = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    assert "user=watched" in dumped
    everything = str(said) + dumped + strict.server.log.read_text()
    assert SECRET not in everything
    assert WRONG not in everything


def test_a_dsn_is_not_in_the_list_of_processes(adding: Adding, tmp_path: Path) -> None:
    """A command that waits for a lock, so that there is time to look."""
    config = adding.known.config
    with psycopg.connect(config.database) as holder:
        holder.execute("lock table pipeline.alembic_version in access exclusive mode")
        arguments = ["followers", "add", "reports", "--dsn", f"postgresql://me:{SECRET}@db/shop"]
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env=environment({"source_dsn": config.source, "database_dsn": config.database}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        shown = eventually(lambda: (found := title(process.pid)).startswith("pipeline followers") and found)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert shown == "pipeline followers add reports --dsn ***"
    assert SECRET not in output
    assert sys.executable not in shown
