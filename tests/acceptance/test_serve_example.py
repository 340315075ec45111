"""`pipeline serve --example` and `pipeline psql`, as users try the server who bring no database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pipeline.postgres.databases import PIPELINE, SOURCE
from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures.data_directories import prepare
from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually

EVENTS = "select action, source_table_name, record_pk from sequin_events order by seq"
PAID = "update orders set paid = true where id = 1"


def test_the_example_can_be_changed_and_read_with_psql(
    server_directory: Path, serve: Callable[..., Serving], tmp_path: Path
) -> None:
    data_dir = server_directory.parent
    postgres = EmbeddedServer(data_dir / "postgres")
    prepare(postgres.directory, postgres.bin_dir)

    def psql(*arguments: str, status: int = 0) -> str:
        done = run_command("psql", *arguments, folder=tmp_path, data_dir=data_dir)
        assert done.returncode == status, done
        return done.stdout or done.stderr

    assert f"the embedded Postgres in {postgres.directory} is not running" in psql(SOURCE, status=1)
    assert not postgres.running()

    serving = serve(arguments=("serve", "--example"), source_dsn=None, database_dsn=None, data_dir=data_dir)
    eventually(lambda: events(postgres) == {("read", name, key) for name in TABLES for key in "12"})
    assert psql(SOURCE, "--command", PAID) == "UPDATE 1\n"
    query = "select action, changes from sequin_events order by seq desc limit 1"
    eventually(lambda: psql(PIPELINE, "-At", "-c", query) == 'update|{"paid": false}\n')

    script = tmp_path / "script.sql"
    script.write_text("select 1 / 0;")
    assert "division by zero" in psql(SOURCE, "-v", "ON_ERROR_STOP=1", "-f", str(script), status=3)

    assert serving.stop() == 0
    psql(SOURCE, "-c", "select", status=1)
    assert not postgres.running()


@pytest.mark.long
def test_a_gap_of_the_example_is_accepted_while_its_server_is_stopped(
    server_directory: Path, serve: Callable[..., Serving], slot_name: str, tmp_path: Path
) -> None:
    data_dir = server_directory.parent
    postgres = EmbeddedServer(data_dir / "postgres")
    prepare(postgres.directory, postgres.bin_dir)
    settings = {"source_dsn": None, "database_dsn": None, "data_dir": data_dir, "slot": slot_name}

    def command(*arguments: str) -> str:
        done = run_command(*arguments, folder=tmp_path, **settings)
        assert (done.returncode, postgres.running()) == (0, False), done
        return done.stdout

    serving = serve(arguments=("serve", "--example"), **settings)
    eventually(lambda: complete(postgres))
    assert serving.stop() == 0
    assert slot_name in command("slots", "list")
    assert f'slot "{slot_name}" deleted' in command("slots", "delete", slot_name, "--force", "--yes")
    adopted = command("sources", "adopt", "--reread", "--yes")
    assert "epoch 1 begins" in adopted
    assert "does not know all rows" not in adopted
    assert serve(**settings).stop() == 0  # it is ready first


TABLES = ("customers", "products", "orders")


def complete(postgres: EmbeddedServer) -> bool:
    """True if the log has all rows of the example."""
    with psycopg.connect(postgres.dsn(PIPELINE)) as log:
        states = log.execute("select state from pipeline.snapshots").fetchall()
    return states == [("complete",)] * len(TABLES)


def events(postgres: EmbeddedServer) -> set[tuple[str, str, str]]:
    with psycopg.connect(postgres.dsn(PIPELINE)) as log:
        return set(log.execute(EVENTS.encode()).fetchall())


def test_the_example_is_refused_beside_a_dsn(tmp_path: Path) -> None:
    done = run_command("serve", "--example", folder=tmp_path, source_dsn="postgresql://ann:not-to-be-seen@db/shop")
    said = "pipeline: --example needs the embedded Postgres: unset PIPELINE_SOURCE_DSN, or leave --example out\n"
    assert (done.returncode, done.stderr) == (2, said)
    assert list(tmp_path.iterdir()) == []


def test_psql_shows_the_command_for_a_database_with_a_dsn(tmp_path: Path) -> None:
    dsn = "postgresql://ann:not-to-be-seen@db/log"
    done = run_command("psql", PIPELINE, "-c", "select 1", folder=tmp_path, database_dsn=dsn)
    line = "psql -h db -U ann -d log"
    said = f"pipeline: the pipeline database has a DSN, so it is not embedded; open it with: {line}\n"
    assert (done.returncode, done.stderr) == (2, said)
