"""Objects of an ordinary role do nothing in the server's sessions at the source, whatever its rights are there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import TableRefusedError
from pipeline.postgres import connections
from pipeline.snapshots import start
from pipeline.wires.pgdeltastream.sessions import snapshot
from pipeline.wires.pgdeltastream.sessions.page_query import SnapshotPage
from tests.fixtures.hostile_objects import HARMLESS, OBJECTS, Hostile, HostileObject
from tests.fixtures.postgres import Cluster
from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually

REFUSED = {f"app.{each.table}" for each in HARMLESS if each.captured and not each.comparable}
COMPARED = {f"app.{each.table}" for each in HARMLESS if each.captured and each.comparable}


def command(config: Config, folder: Path, *arguments: str) -> dict[str, Any]:
    ended = run_command(
        *arguments, "--json", folder=folder, source_dsn=config.source, database_dsn=config.database, slot=config.slot,
        source_read_dsn=config.source_reading,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def finish(log: psycopg.Connection) -> None:
    open_ones = "select from pipeline.backfills where state in ('waiting', 'reading')"
    eventually(lambda: log.execute(open_ones).rowcount == 0)


def page(config: Config, table: str) -> list[dict[str, Any]]:
    """A page as a session of another system reads it."""
    with psycopg.connect(config.source) as exporting:
        exporting.execute("set transaction isolation level repeatable read")
        name = exporting.execute("select pg_export_snapshot()").fetchone()
        assert name is not None
        session: Any = SimpleNamespace(slot="of a page")
        exported = snapshot.ExportedSnapshot(session, name[0], [config.publication], exporting)

        async def read() -> bytes:
            async with aclosing(snapshot.rows(config, exported, SnapshotPage(table, 0, 10, ("n", "asc")))) as pieces:
                return b"".join([piece async for piece in pieces])

        found: list[dict[str, Any]] = json.loads(asyncio.run(read()))
        return found


def use(config: Config, log: psycopg.Connection, objects: list[HostileObject]) -> None:
    """What reads rows, besides the first backfills: conditions, comparisons, pages."""
    with (
        connections.connect(config.database, "pipeline database") as pipeline,
        connections.connect(config.source, "source") as catalog,
    ):
        for each in objects:
            name = f"app.{each.table}"
            start.start(config, catalog, pipeline, name, start.by_text("n = 2"))
            assert [row["n"] for row in page(config, name)] == [1, 2, 3]
        finish(log)
        for each in objects:
            name = f"app.{each.table}"
            if each.comparable:
                start.start(config, catalog, pipeline, name, differences=True)
            else:
                with pytest.raises(
                    TableRefusedError, match=f"{name} cannot be compared: (the type app|an implicit cast)"
                ):
                    start.start(config, catalog, pipeline, name, differences=True)
        finish(log)
    with pytest.raises(TableRefusedError):
        page(config, "app.view")
    failed = log.execute("select table_name, state from pipeline.backfills where state <> 'complete'").fetchall()
    assert failed == []


@pytest.fixture
def hostile(source_cluster: Cluster, source_dsn: str) -> Iterator[Callable[..., Hostile]]:
    yield lambda objects: Hostile(source_cluster, source_dsn, objects)


def test_nothing_of_an_owner_runs_though_the_server_is_a_superuser(
    serve: Callable[..., Serving], hostile: Callable[..., Hostile], database_dsn: str, source_dsn: str, slot_name: str,
    tmp_path: Path,
):  # fmt: skip
    objects = hostile(HARMLESS)
    objects.publish("pipeline")
    with psycopg.connect(database_dsn, autocommit=True) as log:
        serve()
        whole = "select count(*) from pipeline.snapshots where state = 'complete'"
        eventually(lambda: log.execute(whole).fetchone() == (len(REFUSED | COMPARED),))
        with objects.as_owner() as owner:
            for each in HARMLESS:
                if each.captured:
                    owner.execute(f"update app.{each.table} set n = 3 + n where n = 3".encode())
                    owner.execute(f"update app.{each.table} set n = 3 where n = 6".encode())
        config = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)
        use(config, log, [each for each in HARMLESS if each.captured])
        with ThreadPoolExecutor() as at_once:
            looks = ("verify", "--content"), ("check",), ("status", "--all")
            verified, *_ = at_once.map(lambda look: command(config, tmp_path, *look), looks)
        found = {each["table"]: each for each in verified["tables"]}
        assert {name for name, each in found.items() if each["state"] == "equal"} == COMPARED
        assert {name for name, each in found.items() if each["state"] == "refused"} == REFUSED
    assert objects.ran() == set()
    objects.require_no_harm()


@pytest.mark.long
def test_what_the_planner_runs_has_no_rights_with_small_roles(
    serve: Callable[..., Serving], hostile: Callable[..., Hostile], database_dsn: str, source_dsn: str, slot_name: str,
    tmp_path: Path,
):  # fmt: skip
    objects = hostile(OBJECTS)
    objects.publish("pipeline")
    first, reads = objects.small_role(replication=True), objects.small_role(replication=False)
    small = {
        "source_dsn": make_conninfo(source_dsn, user=first),
        "source_read_dsn": make_conninfo(source_dsn, user=reads),
    }
    with psycopg.connect(source_dsn, autocommit=True) as source, psycopg.connect(database_dsn, autocommit=True) as log:
        serve(**small)
        whole = "select count(*) from pipeline.snapshots where state = 'complete'"
        captured = [each for each in OBJECTS if each.captured and each.kind != "partition key"]
        eventually(lambda: log.execute(whole).fetchone() == (len(captured),))
        config = settings.load(None, database_dsn=database_dsn, slot=slot_name, **small)
        use(config, log, captured)
        found = command(config, tmp_path, "verify", "--content")["tables"]
        planned = {f"app.{each.table}" for each in captured if each.planned}
        assert {each["table"] for each in found if each["state"] == "equal"} == COMPARED | planned
        slots = source.execute("select from pg_replication_slots where slot_name = %s", [slot_name])
        assert slots.rowcount == 1
    assert {what for what, _ in objects.ran()} == {"index expression", "index predicate", "statistics"}
    objects.require_no_harm()
