"""What a source refuses, or lets wait, of a slot that standbys may copy; and a source that has no such slots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pipeline.capture import source_requirements
from pipeline.capture.catchup import copying, helper, store
from pipeline.capture.catchup.plan import split_backlog
from pipeline.capture.source import failover, slot_failover, slots, walsender
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError
from pipeline.postgres import connections
from pipeline.postgres.embedded import EmbeddedServer
from pipeline.process.signals import StopSignal
from tests.fixtures.data_directories import prepare
from tests.fixtures.followers import primary_and_standby
from tests.fixtures.postgres import SETTINGS, Cluster, free_port, unique
from tests.fixtures.replicating import replicate_first
from tests.fixtures.shuffling import stored
from tests.fixtures.waiting import eventually

LIMIT = "set_config('statement_timeout', '5s', true)"
END = "select (pg_current_wal_lsn() - '0/0')::bigint"
PLAIN_SLOT = "select pg_create_logical_replication_slot(%s, 'pgoutput')"


@pytest.fixture
def waiting_source(server_directory: Path) -> EmbeddedServer:
    """Return a source that waits for a standby, which does not exist, before a slot with `failover` advances."""
    given = {**SETTINGS, "synchronized_standby_slots": "gone"}
    server = EmbeddedServer(server_directory, settings=given, port=free_port())
    prepare(server_directory, server.bin_dir)
    server.start()
    return server


def test_the_slot_stays_behind_while_a_standby_is_down_and_advances_later(
    waiting_source: EmbeddedServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LIMIT in copying._LIMIT_WAIT
    monkeypatch.setattr(copying, "_LIMIT_WAIT", copying._LIMIT_WAIT.replace("'5s'", "'300ms'"))
    with connections.connect(waiting_source.tcp_dsn("postgres"), "source") as source:
        begin = slots.create(source, "anchor")
        source.execute("create table public.t (id int primary key)")
        ((end,),) = source.execute(END).fetchall()

        def advance() -> int:
            copying.advance_slot(source, "anchor", end, end)
            found = slots.find(source, "anchor")
            assert found is not None
            assert found.confirmed_lsn is not None
            return found.confirmed_lsn

        assert advance() == begin
        assert [record.__dict__["action"] for record in caplog.records] == ["catchup.slot_behind"]
        assert "statement timeout" in caplog.text
        source.execute("alter system set synchronized_standby_slots = ''")
        source.execute("select pg_reload_conf()")
        eventually(lambda: advance() >= end)


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    return settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)


def test_a_helper_reads_nothing_of_a_timeline_that_was_not_checked(config: Config) -> None:
    replicate_first(config)
    with connections.connect(config.database, "pipeline database") as pipeline:
        source = stored(pipeline)
        ((generation, position),) = pipeline.execute(
            "select generation, position from pipeline.replication_progress where worker = 0"
        ).fetchall()
        store.add_plan(pipeline, source.id, generation, split_backlog(position, position + 1000, 2)[1:])
        pipeline.execute("update pipeline.sources set timeline = 7")
        with pytest.raises(DatabaseUnavailableError, match="went from timeline 7 to 1 while it was read"):
            asyncio.run(helper._stage(config, 1, [config.publication], StopSignal(ignore_interrupt=True)))
        query = "select position = from_lsn, (select count(*) from pipeline.segments where worker = 1) from"
        join = "pipeline.replication_progress join pipeline.catchup_parts using (source_id, worker) where worker = 1"
        assert pipeline.execute(f"{query} {join}".encode()).fetchall() == [(True, 0)]


@pytest.fixture
def plain_role(cluster: Cluster) -> Iterator[str]:
    """Return a role that may not replicate."""
    name = unique("plain")
    with cluster.connect() as administrator:
        administrator.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
        yield name
        administrator.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_a_slot_that_may_not_be_altered_stays_as_it_is(
    config: Config, plain_role: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_failover, "ALTER_SECONDS", 0.3)
    with connections.connect(config.source, "source") as source:
        source.execute(PLAIN_SLOT, [config.slot])
        slot_failover.enable(make_conninfo(config.source, user=plain_role), config.slot)
        assert "may not replicate" in caplog.text
        found = slots.find(source, config.slot)
        assert found is not None
        assert found.failover is False
        warning, *_ = source_requirements.check_failover(config, config.source, source)
        assert warning.text == failover.no_failover(config.slot).text
        with closing(walsender.connect(config.source, "another program")) as session:
            begin = f"START_REPLICATION SLOT \"{config.slot}\" LOGICAL 0/0 (proto_version '1', publication_names 'p')"
            session.pgconn.exec_(begin.encode())
            slot_failover.enable(config.source, config.slot)
        assert "does not answer within 0.3 s" in caplog.text
        assert [record.__dict__["action"] for record in caplog.records] == ["slot.no_failover"] * 2


def test_check_says_that_nothing_is_known_of_a_source_of_16(clusters: Callable[[int], Cluster], slot_name: str) -> None:
    with clusters(16).database("source") as dsn, connections.connect(dsn, "source") as source:
        config = settings.load(source_dsn=dsn, database_dsn=dsn, slot=slot_name)
        source.execute(PLAIN_SLOT, [slot_name])
        found = list(source_requirements.check_failover(config, config.source, source))
        assert [(each.level, each.name) for each in found] == [("ok", "failover")]
        assert found[0].text.startswith("not known ")


@pytest.mark.long
def test_a_standby_of_16_is_named_because_it_copies_no_slots(server_directory: Path) -> None:
    primary, standby = primary_and_standby(server_directory, 16)
    dsn = make_conninfo(primary.tcp_dsn("postgres"), host="127.0.0.1,127.0.0.1", port=f"{primary.port},{standby.port}")
    found = failover.read(dsn, "pipeline")
    assert found is not None
    (problem,) = found.problems
    begin = f"127.0.0.1:{standby.port} runs a version without failover slots: a failover leaves a gap"
    assert (found.ready, problem.text.startswith(begin), problem.remedy) == (
        None,
        True,
        "upgrade it to Postgres 17 or newer",
    )
