"""Routes change under load between servers that are killed: the events tables together are the source's history."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg

from pipeline.client import EventLog
from tests.fixtures.background import BackgroundThread
from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually

A, B = "public.a_events", "audit.events"
DEFAULT = "public.sequin_events"
ROUTES: tuple[list[dict[str, object]], ...] = (
    [{"tables": ["public.a"], "events_table": A}, {"actions": ["delete"], "events_table": B}],
    [],
    [{"tables": ["public.b"], "events_table": A}, {"tables": ["*.*"], "actions": ["update"], "events_table": B}],
    [{"actions": ["insert"], "events_table": B}],
)
Change = tuple[str, str, int]


def transaction(number: int) -> list[Change]:
    changes = [("a", "insert", number), ("b", "insert", number), ("a", "update", number)]
    return changes if number == 1 else [*changes, ("b", "delete", number - 1)]


class Load(BackgroundThread):
    """Transactions one after the other, each of four changes of two tables."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self.done = 0
        self._dsn = dsn

    def work(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as source:
            while not self.stopped.wait(0.006):
                number = self.done + 1
                with source.transaction():
                    source.execute("insert into a values (%s, 0)", [number])
                    source.execute("insert into b values (%s)", [number])
                    source.execute("update a set n = 1 where id = %s", [number])
                    source.execute("delete from b where id = %s", [number - 1])
                self.done = number


def moved(log: psycopg.Connection) -> int:
    row = log.execute("select coalesce(sum(events), 0)::bigint from pipeline.shuffle_progress").fetchone()
    return int(row[0]) if row else 0


def eventually_more(log: psycopg.Connection) -> None:
    before = moved(log)
    eventually(lambda: moved(log) > before + 100)


def union(log: psycopg.Connection) -> list[Change]:
    """Every event of all tables, by its place at the source."""
    select = "select source_table_name, action, (record ->> 'id')::int, commit_lsn, commit_idx from"
    query = " union all ".join(f"{select} {table}" for table in (A, B, DEFAULT))
    return [(row[0], row[1], row[2]) for row in log.execute(f"{query} order by commit_lsn, commit_idx").fetchall()]


def test_routes_that_change_under_load_with_kill_9_lose_and_repeat_nothing(
    serve: Callable[..., Serving], source_dsn: str, database_dsn: str, slot_name: str, tmp_path: Path
) -> None:
    with (
        psycopg.connect(database_dsn, autocommit=True) as log,
        psycopg.connect(source_dsn, autocommit=True) as source,
    ):
        log.execute("create schema audit")
        source.execute("create table a (id int primary key, n int); create table b (id int primary key)")
        server = serve(routes=json.dumps(ROUTES[0]))  # what is written before there is a slot is not in the log
        with Load(source_dsn) as load:
            for routes in ROUTES[1:]:
                eventually_more(log)
                os.kill(server.child_pid("shuffle"), signal.SIGKILL)
                server.kill()
                server = serve(routes=json.dumps(routes))
            eventually_more(log)
        expected = [change for done in range(load.done) for change in transaction(done + 1)]
        eventually(lambda: moved(log) >= len(expected))
        assert union(log) == expected
        held = log.execute("select jsonb_array_length(routes) from pipeline.routes order by id").fetchall()
        assert held == [(len(routes),) for routes in ROUTES]
        assert [event.seq for event in EventLog(database_dsn, B).read(0, limit=3)] == [1, 2, 3]
        commands(tmp_path, source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)
        metrics = server.get("/metrics").text
        assert f'pipeline_events_table_events_total{{table="{A}"}}' in metrics


def commands(folder: Path, **settings: object) -> None:
    """What people see of it, beside the server."""
    done = run_command("verify", "--json", folder=folder, **settings)
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["tables"] == [DEFAULT, B, A]
    assert run_command("verify", folder=folder, **settings).returncode == 0
    listed = json.loads(run_command("routes", "list", "--json", folder=folder, **settings).stdout)
    assert [len(held["routes"]) for held in listed["history"]] == [1, 2, 0, 2]
    assert listed["pending"]
    assert {table["name"] for table in listed["tables"]} == {A, B, DEFAULT}
    shown = run_command("routes", "list", folder=folder, **settings).stdout
    assert "route 1" in shown
    assert "they apply when the server next starts" in shown
    assert B in run_command("status", "--all", folder=folder, **settings).stdout
