"""What the preflight says of sessions of other systems' clients, at a source that spares little."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pipeline.capture.source import slots, sources, timeline
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import load
from pipeline.findings import CheckFinding
from pipeline.operate.preflight import check
from pipeline.postgres import connections, session_settings
from pipeline.postgres.embedded import EmbeddedServer
from pipeline.wires.pgdeltastream.sessions import store
from tests.fixtures.data_directories import prepare
from tests.fixtures.postgres import SETTINGS, Cluster, bin_dir, free_port, unique

Found = list[tuple[str, str]]
SPARING = {
    "max_replication_slots": "5",
    "max_wal_senders": "6",
    "synchronous_standby_names": '"pipeline session delta_few7"',
    "synchronous_commit": "local",
    "max_slot_wal_keep_size": "1GB",
    "idle_replication_slot_timeout": "10min",
}


@pytest.fixture(scope="module")
def sparing() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="wal-pg-sparing-"))
    server = EmbeddedServer(folder, bin_dir=bin_dir(18), settings=SETTINGS | SPARING, port=free_port())
    try:
        prepare(folder, server.bin_dir)
        server.start()
        with closing(Cluster(server.dsn("postgres"), server)) as cluster:
            yield cluster
    finally:
        server.stop("immediate")
        shutil.rmtree(folder)


@pytest.fixture
def source_cluster(sparing: Cluster) -> Cluster:
    return sparing


@pytest.fixture
def findings(source_dsn: str, database_dsn: str, slot_name: str, tmp_path: Path) -> Callable[..., list[CheckFinding]]:
    def run(**settings: Any) -> list[CheckFinding]:
        given: dict[str, Any] = {"source_dsn": source_dsn, "database_dsn": database_dsn, "slot": slot_name}
        return check.run(load(**given | {"data_dir": tmp_path, "export_schedule": "off"} | settings))

    return run


def of_sessions(found: list[CheckFinding]) -> Found:
    return [(each.level, each.text) for each in found if each.name == "sessions"]


def room(found: list[CheckFinding]) -> tuple[str, str]:
    return of_sessions(found)[0]


def test_nothing_is_said_where_no_wire_is_served(findings: Callable[..., list[CheckFinding]]) -> None:
    assert [each for each in findings() if each.name in ("sessions", "open_wires")] == []


def test_what_the_source_does_to_sessions_by_itself(findings: Callable[..., list[CheckFinding]]) -> None:
    _, *others = of_sessions(findings(wires="pgdeltastream"))
    assert [level for level, _ in others] == ["warning"] * 3
    chosen, kept, idle = (text for _, text in others)
    assert "can choose a session's walsender: users' commits would wait for a client" in chosen
    assert kept.startswith("PIPELINE_SESSIONS_WAL is 10.0 GB, but") and "holds back 1.1 GB" in kept
    assert idle.startswith("PIPELINE_SESSIONS_IDLE is 1 h, but") and "is unread for 10 min" in idle
    within = findings(wires="pgdeltastream", sessions_idle="5m", sessions_wal="1GB")
    assert [text for _, text in of_sessions(within)[1:]] == [chosen]


def test_room_is_counted_without_what_sessions_have_already(
    findings: Callable[..., list[CheckFinding]], source_dsn: str, database_dsn: str, slot_name: str
) -> None:
    here = "the source has 4 of its max_replication_slots = 5 for them, and one of these stays free for the worker"
    enough, scarce = (
        ("ok", "there is room for 3 sessions"),
        f"there is room for 3 of 4 sessions (PIPELINE_SESSIONS_MAX): {here}",
    )
    assert room(findings(wires="pgdeltastream", sessions_max=3)) == enough
    assert room(findings(wires="pgdeltastream")) == ("warning", scarce)
    with (
        connections.connect(source_dsn, "source", settings=session_settings.SERVER) as source,
        connections.connect(database_dsn, "pipeline database") as pipeline,
    ):
        cluster, name = timeline.read_identity(source).system_identifier, str(source.info.dbname)
        sources.add(pipeline, ReplicationSource(uuid.uuid4(), 0, cluster, name, slot_name))
        stored = sources.find(pipeline, None)
        assert stored is not None
        for _ in range(2):
            slot = unique("delta")
            row = store.begin(
                pipeline,
                slot=slot,
                wire="pgdeltastream",
                source_id=stored.id,
                epoch=0,
                system_identifier=cluster,
                made_after=0,
            )
            assert row is not None
            store.ready(pipeline, row.id, slots.create(source, slot))
        assert room(findings(wires="pgdeltastream", sessions_max=3)) == enough
        assert room(findings(wires="pgdeltastream")) == ("warning", scarce)
        slots.create(source, unique("somebody"))
        fewer = room(findings(wires="pgdeltastream"))
        assert fewer[0] == "warning" and fewer[1].startswith("there is room for 2 of 4 sessions")


def test_no_room_at_all(findings: Callable[..., list[CheckFinding]], source_dsn: str) -> None:
    with psycopg.connect(source_dsn, autocommit=True) as source:
        for _ in range(4):
            source.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [unique("somebody")])
    found = next(each for each in findings(wires="pgdeltastream") if each.name == "sessions")
    assert found.text.startswith("there is room for 0 of 4 sessions")
    assert found.remedy == "raise max_replication_slots at the source"


def test_open_wires_are_a_warning_with_a_remedy(findings: Callable[..., list[CheckFinding]]) -> None:
    given = {"wires": "pgdeltastream", "open_wires": "pgdeltastream", "api_token": "geheim"}
    (found,) = [each for each in findings(**given) if each.name == "open_wires"]
    assert (found.level, found.remedy) == ("warning", "let only its clients reach it; close it when they are gone")
    assert found.text.startswith(
        "pgdeltastream answers without the token: any client that reaches 127.0.0.1:12312 can make"
    )


@pytest.mark.parametrize(("wire", "port"), [("walstream", 50051), ("sequin", 12312)])
def test_others_have_no_slots_and_the_port_that_they_are_spoken_at(
    findings: Callable[..., list[CheckFinding]], wire: str, port: int
) -> None:
    found = findings(wires=wire, open_wires=wire, api_token="geheim")
    assert [each.text for each in found if each.name in ("sessions", "open_wires")] == [
        f"{wire} answers without the token: any client that reaches 127.0.0.1:{port} can acknowledge for its clients,"
        " and read every published row"
    ]
