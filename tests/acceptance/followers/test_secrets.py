"""A follower that asks for a password by SCRAM: it is seen nowhere, whether it is the right one or a wrong one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.fixtures.followers import asking_for_a_password
from tests.fixtures.postgres import Cluster, bin_dir
from tests.fixtures.processes import children, title
from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually

RIGHT, WRONG = "sentinel-t10-richtig", "sentinel-t10-falsch"
VARIABLE = "PIPELINE_FOLLOWER_PASSWORD_REPORTS"


@pytest.fixture(scope="module")
def strict() -> Iterator[Cluster]:
    with asking_for_a_password("watched", RIGHT) as made:
        yield made


def family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    for child in children(pid):
        yield from family(child)


def command_lines(pid: int) -> str:
    """As `ps` shows them."""
    return " ".join(title(each) for each in family(pid))


def dump(dsn: str) -> str:
    command = [str((bin_dir(18) or Path()) / "pg_dump"), dsn]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.long
def test_no_password_is_seen_while_it_is_followed(
    strict: Cluster,
    serve: Callable[..., Serving],
    source_dsn: str,
    database_dsn: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert strict.server is not None
    said, file = list[str](), tmp_path / "password"
    dsn = f"{strict.tcp_dsn('postgres')} user=watched"
    databases: dict[str, object] = {"source_dsn": source_dsn, "database_dsn": database_dsn}

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = run_command(*arguments, folder=tmp_path, **databases)
        said.extend((done.stdout, done.stderr))
        return done

    def shown(state: str, word: str) -> None:
        found = command("followers", "show", "reports").stdout
        assert state in found
        assert word in found

    with psycopg.connect(source_dsn, autocommit=True) as source:
        source.execute("create table t (id int primary key)")
        monkeypatch.setenv(f"{VARIABLE}_FILE", str(file))
        file.write_text(WRONG)
        server = serve(snapshot="never", log_level="debug")
        refused = command("followers", "add", "reports", "--dsn", dsn, "--json")
        assert (refused.returncode, 'password authentication failed for user "watched"' in refused.stderr) == (1, True)
        file.write_text(RIGHT)
        assert command("followers", "add", "reports", "--dsn", dsn, "--json").returncode == 0
        file.write_text(WRONG)
        with strict.connect() as there:
            there.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'watched'")
            eventually(lambda: shown("waiting", 'password authentication failed for user "watched"'))
            said.append(command_lines(server.process.pid))
            file.write_text(RIGHT)
            source.execute("insert into t values (1)")
            eventually(
                lambda: there.execute("select id from public.t").fetchall() == [(1,)],
                errors=(psycopg.Error, AssertionError),
            )
            eventually(lambda: shown("following", "public.t"))
            said.append(str(there.execute("select * from pg_stat_activity").fetchall()))
        said.append(command_lines(server.process.pid))
        said.append(httpx.get(f"http://127.0.0.1:{server.port}/v1/followers").text)
        said.append(httpx.get(f"http://127.0.0.1:{server.port}/metrics").text)
        for arguments in (("status", "--json"), ("followers", "verify", "reports")):
            assert command(*arguments).stdout
        assert command("followers", "release", "reports", "--sequences").returncode == 0
    said += [dump(source_dsn), dump(database_dsn), dump(strict.dsn("postgres")), strict.server.log.read_text()]
    said.append(server.log())
    everything = "\n".join(said)
    assert "reports" in said[-1], "the server's log has something to say"
    assert RIGHT not in everything
    assert WRONG not in everything
