"""A poisoned change and the real server: it stops and says so, goes on, parks, and retries by command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually

NO_BAD = "alter table sequin_events add constraint no_bad check (record ->> 'v' is distinct from 'bad') not valid"
NO_CHECK = "alter table sequin_events drop constraint no_bad"


@pytest.fixture
def command(tmp_path: Path, source_dsn: str, database_dsn: str, slot_name: str) -> Callable[..., Any]:
    def run(*arguments: str) -> Any:
        return run_command(
            *arguments, folder=tmp_path, source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name
        )

    return run


def test_it_stops_goes_on_parks_and_retries(
    serve: Callable[..., Serving], source_dsn: str, database_dsn: str, command: Callable[..., Any]
):
    def logged() -> list[tuple[Any, ...]]:
        return log.execute("select record ->> 'id', metadata from sequin_events order by seq").fetchall()

    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(database_dsn, autocommit=True) as log,
    ):
        source.execute("create table t (id int primary key, v text)")
        server = serve()
        log.execute(NO_BAD)
        source.execute("insert into t values (1, 'good')")
        source.execute("insert into t values (2, 'bad'), (3, 'good')")

        def stops() -> None:
            (reason,) = server.get("/readyz").json()["reasons"]
            assert reason.startswith("shuffle: insert of public.t at (") and "no_bad" in reason

        eventually(stops, errors=(AssertionError, ValueError, KeyError))
        assert logged() == [("1", None)]
        log.execute(NO_CHECK)
        server.wait_ready()
        eventually(lambda: len(logged()) == 3)
        log.execute(NO_BAD)
        source.execute("insert into t values (4, 'bad'), (5, 'good')")
        eventually(lambda: server.get("/readyz").status_code == 503)
        assert server.stop() == 0
        parking = serve(on_poison="park")
        eventually(lambda: len(logged()) == 5)
        assert logged()[3:] == [(None, {"parked": 1}), ("5", None)]
        parking.wait_ready()
        assert 'pipeline_dead_letters{state="parked"} 1.0' in parking.get("/metrics").text
        failed = command("dead-letters", "retry", "1")
        assert failed.returncode == 1 and "1 dead letter failed again" in failed.stdout
        log.execute(NO_CHECK)
        done = command("dead-letters", "retry", "--all")
        assert (done.returncode, done.stdout) == (0, "1 dead letter written at the head of the log\n")
        assert logged()[5:] == [("4", {"retried": 1})]
        (letter,) = json.loads(command("dead-letters", "list", "--json").stdout)["data"]
        assert (letter["state"], letter["attempts"], letter["table"]) == ("retried", 3, "public.t")
        assert command("verify").returncode == 0
        assert "1 retried" in command("status", "--all").stdout
        assert parking.stop() == 0
    refused = command("dead-letters", "discard", "1")
    assert refused.returncode == 1 and "1 is retried" in refused.stderr


def test_skipping_where_nothing_stops_is_refused(command: Callable[..., Any]):
    refused = command("sources", "skip-transaction", "0/1")
    assert refused.returncode == 1 and "there is nothing to skip" in refused.stderr
