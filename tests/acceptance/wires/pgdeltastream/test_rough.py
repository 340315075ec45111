"""A source that restarts, is restored, loses what a session needs: each said plainly, and nothing is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.fixtures.delta_stream import Line, refusal, values
from tests.fixtures.postgres import Cluster
from tests.fixtures.rough_wire import Rough, running
from tests.fixtures.server import run_command
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group("rough wires")


@pytest.fixture(scope="module")
def rough(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rough]:
    home = tmp_path_factory.mktemp("pg")
    with running(18, cluster, tmp_path_factory.mktemp("rough"), home / "a") as made:
        yield made


def ids(line: Line, wanted: int) -> list[int]:
    """Of the next inserts, this many."""
    found: list[int] = []
    while len(found) < wanted:
        found += [values(change)["id"] for change in line.changes()]
    return found


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_the_source_is_reported_and_the_next_stream_continues(rough: Rough, mode: str) -> None:
    base = 100 if mode == "fast" else 200
    slot = rough.client.init()
    with rough.client.stream(slot) as line:
        rough.run(f"insert into t values ({base + 1})", f"insert into t values ({base + 2})")
        assert ids(line, 2) == [base + 1, base + 2]
        acknowledged = line.frames[0]["nextlsn"]
        line.ack(acknowledged)
        rough.reaches(slot, acknowledged)
        rough.postgres.stop(mode)  # type: ignore[arg-type]
        code, reason = line.closed()
        assert code == 1012, (code, reason)
    down = refusal(rough.client, slot)
    assert down[0] == 1012, down
    rough.postgres.start()
    rough.run(f"insert into t values ({base + 3})")
    with rough.client.again(slot) as line:
        assert ids(line, 2) == [base + 2, base + 3], "what was not acknowledged, and what came since"
        line.ack(line.frames[-1]["nextlsn"])
        rough.reaches(slot, line.frames[-1]["nextlsn"])


def test_an_invalidated_slot_is_refused_as_gone(rough: Rough) -> None:
    idle, streaming = rough.client.init(), rough.client.init()
    with (
        psycopg.connect(rough.postgres.tcp_dsn("shop"), autocommit=True) as source,
        rough.client.stream(streaming) as line,
    ):
        rough.run("insert into t values (300)")
        ids(line, 1)
        for number in range(4):
            rough.run(f"insert into t values ({301 + number})", "select pg_switch_wal()")
        eventually(lambda: _server_follows(source, rough))
        rough.run("alter system set max_slot_wal_keep_size = '1MB'", "select pg_reload_conf()")

        def lost() -> None:
            rough.run("checkpoint")
            query = "select wal_status from pg_replication_slots where slot_name = any(%s)"
            assert source.execute(query, [[idle, streaming]]).fetchall() == [("lost",), ("lost",)]

        eventually(lost)
        rough.run("alter system reset max_slot_wal_keep_size", "select pg_reload_conf()")
        code, reason = line.closed()
        assert code in (1012, 4410), (code, reason)
    for slot in (idle, streaming):
        code, reason = refusal(rough.client, slot)
        assert code == 4410, (code, reason)
        assert slot in reason


def _server_follows(source: psycopg.Connection, rough: Rough) -> bool:
    """Whether its own slot needs only WAL that was written just now."""
    source.execute("select pg_log_standby_snapshot()" if source.info.server_version >= 160000 else "checkpoint")
    query = "select pg_current_wal_lsn() - restart_lsn < 1000000 from pg_replication_slots where slot_name = %s"
    return source.execute(query, [rough.settings["slot"]]).fetchone() == (True,)


def test_a_restored_source_and_its_adoption_end_sessions(rough: Rough, tmp_path: Path) -> None:
    slot = rough.client.init()
    with rough.client.stream(slot) as line:
        rough.run("insert into t values (400)")
        ids(line, 1)
        line.ack(line.frames[-1]["nextlsn"])
        rough.reaches(slot, line.frames[-1]["nextlsn"])
    saved = rough.postgres.directory.with_name("saved")
    rough.postgres.stop()
    shutil.copytree(rough.postgres.data, saved, symlinks=True)
    rough.postgres.start()
    with rough.client.again(slot) as line:
        rough.run(*(f"insert into t values ({401 + number})" for number in range(50)))
        ids(line, 50)
        line.ack(line.frames[-1]["nextlsn"])
        rough.reaches(slot, line.frames[-1]["nextlsn"])
    with psycopg.connect(str(rough.settings["database_dsn"]), autocommit=True) as log:
        arrived = "select from sequin_events where record ->> 'id' = '450'"
        eventually(lambda: log.execute(arrived).rowcount == 1)  # so that the server too has seen what is undone now
    rough.postgres.stop()
    shutil.rmtree(rough.postgres.data)
    saved.rename(rough.postgres.data)
    rough.postgres.start()
    code, reason = eventually(lambda: _not_away(rough, slot))
    assert code == 4410, (code, reason)
    assert rough.client.page("t", slotName=slot).status_code in (500, 503)
    rough.end()
    done = run_command("sources", "adopt", "--yes", folder=tmp_path, **rough.settings)
    assert done.returncode == 0, done
    rough.begin()
    code, reason = refusal(rough.client, slot)
    assert code == 4410, (code, reason)

    def outlives_nothing() -> None:  # where the log itself lost nothing, the leader ends it, not the adoption
        with psycopg.connect(rough.postgres.tcp_dsn("shop")) as source:
            left = source.execute("select from pg_replication_slots where slot_name = %s", [slot]).fetchall()
        assert left == [], "a session's slot does not outlive it"

    eventually(outlives_nothing)
    eventually(lambda: rough.server.get("/readyz").status_code == 200)
    fresh = rough.client.init()
    with rough.client.stream(fresh) as line:
        rough.run("insert into t values (1000)")
        assert ids(line, 1) == [1000]


def _not_away(rough: Rough, slot: str) -> tuple[int, str]:
    said = refusal(rough.client, slot)
    assert said[0] != 1012, said
    return said


def test_a_dropped_publication_is_said_and_loses_nothing_that_was_there(rough: Rough) -> None:
    slot = rough.client.init()
    rough.run("drop publication pipeline, pipeline_keyless", "insert into t values (1100)")
    code, reason = refusal(rough.client, slot)
    assert code == 4410, (code, reason)
    assert "publication" in reason
    assert rough.server.get("/healthz").status_code == 200
    rough.run("insert into t values (1101)")
    answer = rough.client.page("t", slotName=slot)
    assert answer.status_code in (200, 500)


@pytest.mark.long
@pytest.mark.parametrize("major", [15, 16])
def test_the_same_on_older_versions(
    major: int, cluster: Cluster, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    checks: tuple[Callable[[Rough], None], ...] = (
        lambda rough: test_a_restart_of_the_source_is_reported_and_the_next_stream_continues(rough, "fast"),
        lambda rough: test_a_restart_of_the_source_is_reported_and_the_next_stream_continues(rough, "immediate"),
        test_an_invalidated_slot_is_refused_as_gone,
        lambda rough: test_a_restored_source_and_its_adoption_end_sessions(rough, tmp_path),
    )
    home = tmp_path_factory.mktemp("pg")
    with running(major, cluster, tmp_path_factory.mktemp("rough"), home / "a") as made:
        for check in checks:
            check(made)
