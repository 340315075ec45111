"""Every wrong setting or unfit server: one plain line that names the thing and the remedy, and nothing was changed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pipeline import logs
from pipeline.capture.source import providers
from pipeline.cli import main as cli
from pipeline.config.settings import load
from pipeline.operate.preflight import check
from pipeline.postgres.embedded import EmbeddedServer
from pipeline.server import serve as serving
from tests.fixtures.data_directories import prepare
from tests.fixtures.mounts import tmpfs
from tests.fixtures.postgres import SETTINGS, Cluster, bin_dir, free_port, unique
from tests.fixtures.processes import group, title
from tests.fixtures.server import Serving, run_at_terminal, run_command
from tests.fixtures.waiting import eventually

SECRET = "sentinel-73-geheim"
Run = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path) -> Run:
    """Run a command that must fail with its one plain line; returns the line."""

    def run(*arguments: str, status: int = 1, folder: Path = tmp_path, **settings: object) -> str:
        settings.setdefault("http_port", free_port())
        done = run_command(*(arguments or ("serve",)), folder=folder, **settings)
        assert done.returncode == status, done
        assert done.stdout == ""
        assert done.stderr.startswith("pipeline: "), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr.strip()

    return run


@pytest.fixture
def refused_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The same inside this process, which is faster."""
    monkeypatch.chdir(tmp_path)
    for module, name in ((cli, "setproctitle"), (serving, "setproctitle"), (logs, "setup")):
        monkeypatch.setattr(module, name, lambda *_: None)

    def run(*arguments: str, status: int = 2, **settings: object) -> str:
        settings.setdefault("http_port", free_port())
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["pipeline", *arguments])
            for name, value in settings.items():
                patch.setenv(f"PIPELINE_{name.upper()}", str(value))
            assert cli.main() == status
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith("pipeline: "), shown.err
        assert shown.err.count("\n") == 1, shown.err
        return shown.err.strip()

    return run


@pytest.fixture(scope="module")
def strict() -> Iterator[Cluster]:
    """A server whose role `watched` needs a password over TCP."""
    with small_server("logical") as server:
        file = server.data / "pg_hba.conf"
        file.write_text("host all watched 127.0.0.1/32 scram-sha-256\n" + file.read_text())
        with psycopg.connect(server.dsn("postgres"), autocommit=True) as conn:
            conn.execute(sql.SQL("create role watched superuser login password {}").format(SECRET))
            conn.execute("select pg_reload_conf()")
        with closing(Cluster(server.dsn("postgres"), server)) as cluster:
            yield cluster


@contextmanager
def small_server(wal_level: str) -> Iterator[EmbeddedServer]:
    with tempfile.TemporaryDirectory(prefix=f"wal-pg-{os.getpid()}-") as folder:
        settings = {**SETTINGS, "wal_level": wal_level}
        server = EmbeddedServer(Path(folder), bin_dir=bin_dir(18), settings=settings, port=free_port())
        prepare(server.directory, server.bin_dir)
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")


@pytest.fixture
def untouched(cluster: Cluster) -> Iterator[str]:
    """A database for both ends that must be as empty afterwards as it was."""
    with cluster.database("untouched") as dsn:
        yield dsn
        assert_untouched(dsn)


def assert_untouched(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        for query in (
            "select nspname from pg_namespace where nspname = 'pipeline'",
            "select relname from pg_class where relnamespace = 'public'::regnamespace",
            "select pubname from pg_publication where pubname like 'pipeline%'",
            "select slot_name from pg_replication_slots where database = current_database() and not active",
        ):
            assert conn.execute(query).fetchall() == [], query


@contextmanager
def role(dsn: str, attributes: str) -> Iterator[str]:
    """Return the DSN of a new role in the same database."""
    name = unique("role")
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("create role {} login " + attributes).format(sql.Identifier(name)))
        try:
            yield make_conninfo(dsn, user=name)
        finally:
            conn.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))


def test_a_dsn_that_is_none(refused_here: Run) -> None:
    for dsn in ("postgresql//u:%s@h/db", "host=x password=a %s", "postgres://u:p@%s@h/db", "postgres://u:%s/x@h/db"):
        line = refused_here("check", source_dsn=dsn % SECRET)
        assert "PIPELINE_SOURCE_DSN: expected a libpq URI" in line
        assert SECRET not in line


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"host": "no-such-host.invalid", "port": "5432"}, r"no-such-host.invalid"),
        ({"host": "127.0.0.1", "port": "1"}, "Connection refused"),
        ({"dbname": "no_such_database"}, 'database "no_such_database" does not exist; create it'),
        ({"user": "no_such_role"}, 'role "no_such_role" does not exist; create it'),
    ],
)
def test_a_dsn_that_leads_nowhere(refused_here: Run, untouched: str, changes: dict[str, str], said: str) -> None:
    line = refused_here("serve", status=1, source_dsn=make_conninfo(untouched, **changes), database_dsn=untouched)
    assert said in line
    assert line.endswith("PIPELINE_SOURCE_DSN")


def test_the_pipeline_database_is_named_as_such(refused_here: Run, untouched: str) -> None:
    wrong = make_conninfo(untouched, dbname="no_such_database")
    line = refused_here("serve", status=1, source_dsn=untouched, database_dsn=wrong)
    assert line.startswith("pipeline: pipeline database (")
    assert line.endswith("PIPELINE_DATABASE_DSN")


def test_a_wrong_password(refused: Run, refused_here: Run, strict: Cluster) -> None:
    wrong = make_conninfo(strict.tcp_dsn("postgres"), user="watched", password=f"{SECRET}-wrong")
    for run, command in ((refused, "serve"), (refused_here, "status"), (refused_here, "migrate")):
        line = run(command, status=1, source_dsn=wrong, database_dsn=wrong)
        assert 'password authentication failed for user "watched"; correct user and password in PIPELINE_' in line
        assert SECRET not in line


def test_the_password_is_nowhere_to_be_seen(tmp_path: Path, strict: Cluster) -> None:
    dsn = make_conninfo(strict.tcp_dsn("postgres"), user="watched", password=SECRET)
    settings: dict[str, object] = {"http_port": free_port(), "log_level": "debug", "database_dsn": dsn}
    server = Serving(tmp_path, settings, (f"--source-dsn={dsn}", "--api-token", SECRET, "serve"))
    try:
        eventually(lambda: SECRET not in title(server.process.pid), 10)
        server.wait_ready()
        ours = group(server.process.pid)
        assert len(ours) >= 5
        assert not [pid for pid in ours if SECRET in title(pid)]
        for command in ("status", "check"):
            done = run_command(*command.split(), folder=tmp_path, source_dsn=dsn, database_dsn=dsn)
            assert done.returncode == 0, done
            assert SECRET not in done.stdout + done.stderr
        assert server.stop() == 0
        assert SECRET not in server.log()
    finally:
        server.close()


def test_a_command_hides_the_secrets_of_its_flags(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        dsn = f"postgresql://user:{SECRET}@127.0.0.1:{port}/db"
        command = ("--source-dsn", dsn, f"--database-dsn={dsn}", "slots", "list")
        server = Serving(tmp_path, {"http_port": free_port()}, command)
        try:
            with silent.accept()[0]:  # while it is open, the command waits for an answer
                assert title(server.process.pid) == "pipeline --source-dsn *** --database-dsn=*** slots list"
        finally:
            server.close()


def test_wal_level(refused: Run, refused_here: Run) -> None:
    with small_server("replica") as server:
        dsn = server.dsn("postgres")
        line = refused(source_dsn=dsn, database_dsn=dsn)
        assert "wal_level = replica; set wal_level = logical in its configuration and restart it" in line
        assert "wal_level" in refused_here("slots", "create", "one", status=1, source_dsn=dsn)
        assert_untouched(dsn)
        assert_remedies_of_providers(dsn)


def assert_remedies_of_providers(dsn: str) -> None:
    """Told by the roles that only their servers have."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create role app login")
        for provider in providers.PROVIDERS:
            conn.execute(f"create role {provider.role}")
            found = {each.name: each for each in check.run(load(source_dsn=f"{dsn} user=app", database_dsn=dsn))}
            assert found["provider"].text.startswith(provider.name)
            assert found["wal_level"].remedy == provider.logical
            assert found["replication right"].remedy == provider.replication.format(user="app")
            conn.execute(f"drop role {provider.role}")


def test_no_right_to_replicate(refused_here: Run, untouched: str) -> None:
    with role(untouched, "") as dsn:
        line = refused_here("serve", status=1, source_dsn=dsn, database_dsn=untouched)
        assert 'may not replicate from the source; run: alter role "role_' in line
        for command in ("create", "delete"):
            line = refused_here("slots", command, "one", status=1, source_dsn=dsn)
            assert "with replication" in line or "does not exist" in line


def test_no_publication_and_no_right_to_create_one(refused: Run, untouched: str) -> None:
    with role(untouched, "replication") as dsn:
        line = refused(source_dsn=dsn, database_dsn=untouched)
        assert 'publication "pipeline" does not exist and this user may not create it' in line
        assert "create publication pipeline for table" in line


def test_no_right_to_make_tables(refused_here: Run, untouched: str) -> None:
    with role(untouched, "") as dsn:
        for command in ("serve", "migrate"):
            line = refused_here(command, status=1, source_dsn=untouched, database_dsn=dsn)
            assert "may not create tables in the pipeline database" in line
            assert "grant create on schema public" in line


def test_a_slot_that_another_program_reads(refused: Run, refused_here: Run, untouched: str, slot_name: str) -> None:
    recvlogical = bin_dir(18)
    assert recvlogical
    options = ["-o", "proto_version=1", "-o", "publication_names=theirs", "-f", "/dev/null"]
    with psycopg.connect(untouched, autocommit=True) as conn:
        conn.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot_name])
        command = [str(recvlogical / "pg_recvlogical"), "-d", untouched, "-S", slot_name, "--start", *options]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as reader:
            try:
                pid = eventually(lambda: active_pid(conn, slot_name))
                line = refused(source_dsn=untouched, database_dsn=untouched, slot=slot_name)
                assert f'slot "{slot_name}" is in use by pid {pid} (pg_recvlogical); stop that program' in line
                assert f"active for PID {pid}" in refused_here(
                    "slots", "delete", slot_name, status=1, source_dsn=untouched
                )
            finally:
                reader.kill()
        eventually(lambda: not active_pid(conn, slot_name))
        conn.execute("select pg_drop_replication_slot(%s)", [slot_name])


def active_pid(conn: psycopg.Connection, slot: str) -> int:
    row = conn.execute("select active_pid from pg_replication_slots where slot_name = %s", [slot]).fetchone()
    return row[0] if row and row[0] else 0


def test_a_port_in_use(refused: Run, untouched: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(source_dsn=untouched, database_dsn=untouched, http_port=port)
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in line
    assert line.endswith("choose another PIPELINE_HTTP_PORT")


def test_a_revision_that_this_code_does_not_know(
    refused: Run, refused_here: Run, untouched: str, cluster: Cluster
) -> None:
    with cluster.database("future") as future, psycopg.connect(future, autocommit=True) as conn:
        conn.execute("create schema pipeline; create table pipeline.alembic_version (version_num text)")
        conn.execute("insert into pipeline.alembic_version values ('9999')")
        for run, command in ((refused, "serve"), (refused_here, "migrate")):
            line = run(command, status=1, source_dsn=untouched, database_dsn=future)
            assert "is at revision '9999', which this version of the server does not know; run the version" in line
        tables = conn.execute("select count(*) from pg_tables where schemaname in ('pipeline', 'public')").fetchone()
        assert tables == (1,)


def test_a_full_disk_below_the_data_directory(refused: Run) -> None:
    with tmpfs("size=8m") as folder:
        line = refused(data_dir=folder / "data")
        assert str(folder) in line
        assert "No space left on device; free some space, or set PIPELINE_DATA_DIR" in line
        assert not (folder / "data" / "postgres" / "data").exists()


def test_a_read_only_mount(refused: Run) -> None:
    with tmpfs("size=1m,ro") as folder:
        line = refused(data_dir=folder / "data")
    assert f"{folder}/data" in line
    assert "Read-only file system" in line
    assert "PIPELINE_DATA_DIR" in line


def test_a_data_directory_behind_a_path_too_long(refused: Run, tmp_path: Path) -> None:
    line = refused(data_dir=tmp_path / ("long" * 30))
    assert "the system allows 107: set PIPELINE_DATA_DIR to a shorter path" in line
    assert list(tmp_path.iterdir()) == []


def test_settings_that_are_wrong(refused: Run, refused_here: Run) -> None:
    assert "PIPELINE_HTTP_PORT: input should be" in refused("serve", status=2, http_port="99999")
    wrong: list[tuple[dict[str, object], str]] = [
        ({"http_port": "abc"}, "PIPELINE_HTTP_PORT: input should be a valid integer"),
        ({"tables": "orders"}, "PIPELINE_TABLES: expected `schema.table`, where * matches anything, not 'orders'"),
        ({"log_level": "loud"}, "PIPELINE_LOG_LEVEL: input should be 'debug', 'info', 'warning' or 'error'"),
        ({"http_host": "0.0.0.0"}, "set PIPELINE_API_TOKEN"),  # noqa: S104
        ({"catchup_threshold": "many"}, "PIPELINE_CATCHUP_THRESHOLD: expected bytes"),
        ({"catchup_interval": 0.01}, "PIPELINE_CATCHUP_INTERVAL: input should be"),
        ({"catchup_max_slots": 65}, "PIPELINE_CATCHUP_MAX_SLOTS: input should be"),
    ]
    for settings, said in wrong:
        assert said in refused_here("status", **settings)


def test_a_settings_file_that_is_wrong(refused_here: Run, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    for text, said in [
        (b'sorce_dsn = ""', "unknown setting 'sorce_dsn' in the configuration file; did you mean source_dsn?"),
        (b"tables = 5", "PIPELINE_TABLES: expected a list of `schema.table`"),
        (b"slot = ", "pipeline.toml is not TOML"),
        (b"slot = '\xff'", "pipeline.toml is not TOML"),
    ]:
        file.write_bytes(text)
        assert said in refused_here("status")
    assert "configuration file missing.toml does not exist" in refused_here("--config", "missing.toml", "status")


def test_wrong_use(refused_here: Run) -> None:
    assert "No such command 'sevre'" in refused_here("sevre")
    assert "'--only'" in refused_here("serve", "--only", "nothing")
    assert "Missing argument" in refused_here("slots", "delete")


def test_slots_that_are_there_or_not(refused_here: Run, untouched: str, slot_name: str, tmp_path: Path) -> None:
    done = run_command("slots", "create", slot_name, folder=tmp_path, source_dsn=untouched)
    assert done.returncode == 0, done
    line = refused_here("slots", "create", slot_name, status=1, source_dsn=untouched)
    assert f'slot "{slot_name}" exists already; choose another name, or delete it first' in line
    done = run_command("slots", "delete", slot_name, "--yes", folder=tmp_path, source_dsn=untouched)
    assert done.returncode == 0, done
    assert f'slot "{slot_name}" does not exist' in refused_here(
        "slots", "delete", slot_name, status=1, source_dsn=untouched
    )
    assert "lower case" in refused_here("slots", "create", "No Name", source_dsn=untouched)


def test_a_slot_is_deleted_by_who_means_it(refused_here: Run, untouched: str, slot_name: str, tmp_path: Path) -> None:
    with psycopg.connect(untouched, autocommit=True) as conn:
        conn.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot_name])
    delete = ("slots", "delete", slot_name)
    own = {"source_dsn": untouched, "slot": slot_name}
    assert "(PIPELINE_SLOT); add --force" in refused_here(*delete, "--yes", **own)
    unread = run_command(*delete, folder=tmp_path, source_dsn=untouched)
    assert unread.returncode == 2
    assert unread.stdout.startswith(f'slot "{slot_name}" of database ')
    assert "of WAL, last read 20" in unread.stdout
    assert (
        unread.stderr
        == "pipeline: standard input is not a terminal, so it cannot be confirmed; nothing was changed; add --yes\n"
    )
    wrong = run_at_terminal("y", *delete, "--force", folder=tmp_path, source_dsn=untouched, slot=slot_name)
    refusal = f'pipeline: you typed "y", not "{slot_name}"; nothing was changed\n'
    assert (wrong.returncode, wrong.stderr) == (1, refusal)
    assert f"Type {slot_name} to continue: " in wrong.stdout
    meant = run_at_terminal(slot_name, *delete, "--force", folder=tmp_path, source_dsn=untouched, slot=slot_name)
    assert meant.returncode == 0, meant
    assert "`pipeline sources adopt` accepts the gap" in meant.stdout
    assert meant.stdout.endswith(f'slot "{slot_name}" deleted\n')


def test_nothing_is_running(refused_here: Run) -> None:
    for command in ("status", "slots list", "slots create", "sources adopt --yes", "verify"):
        line = refused_here(*command.split())
        assert f"{Path.cwd() / '.pipeline'} has no embedded Postgres; PIPELINE_DATA_DIR (.pipeline) is relative" in line
    assert not Path(".pipeline").exists()


def test_a_reader_without_rights(refused_here: Run, database_dsn: str) -> None:
    with role(database_dsn, "") as dsn:
        line = refused_here("status", status=1, source_dsn=dsn, database_dsn=dsn)
    assert "permission denied for schema pipeline" in line
