"""`pipeline serve` without a DSN: its own Postgres, found again, revived, and left stopped."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg

from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually


def events(server: EmbeddedServer) -> list[str]:
    with psycopg.connect(server.dsn("pipeline")) as log:
        return [pk for (pk,) in log.execute("select record_pk from sequin_events order by seq")]


def insert(server: EmbeddedServer, number: int) -> None:
    with psycopg.connect(server.dsn("source")) as source:
        source.execute("insert into t values (%s)", [number])


def test_a_killed_postgres_is_started_again_and_nothing_is_lost(
    server_directory: Path, serve: Callable[..., Serving]
) -> None:
    data_dir = server_directory.parent
    postgres = EmbeddedServer(data_dir / "postgres")
    serving = serve(source_dsn=None, database_dsn=None, data_dir=data_dir)
    assert str(postgres.directory) in serving.log()
    with psycopg.connect(postgres.dsn("source")) as source:
        source.execute("create table t (id int primary key)")
    eventually(lambda: published(postgres))
    insert(postgres, 1)
    eventually(lambda: events(postgres) == ["1"])

    pid = int((postgres.data / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: insert(postgres, 2), errors=(psycopg.Error,))
    eventually(lambda: events(postgres) == ["1", "2"], errors=(psycopg.Error,))
    serving.wait_ready()
    assert newest_events(said(serving, "replication.streaming")[0]) == ["2", "1"]
    assert serving.stop() == 0
    assert not postgres.running()
    assert said(serving, "serve.stopped") == ["stopped; the next `pipeline serve` continues from here"]


def said(serving: Serving, action: str) -> list[str]:
    """The messages of log lines with this action."""
    records = [json.loads(line) for line in serving.log().splitlines() if f'"{action}"' in line]
    return [record["message"] for record in records]


def newest_events(message: str) -> list[str]:
    """The keys that the command prints which the server has told: `psql … -c 'select …'`."""
    replicated, command = message.split("; look at the events: ")
    assert replicated.startswith("replicating database source by slot ")
    output = subprocess.check_output([*shlex.split(command), "--csv"], text=True)
    return [row["record_pk"] for row in csv.DictReader(io.StringIO(output))]


def published(server: EmbeddedServer) -> bool:
    with psycopg.connect(server.dsn("source")) as source:
        return source.execute("select from pg_publication_tables where tablename = 't'").fetchone() is not None
