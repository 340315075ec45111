"""A failover of the source: the slot is on the new primary, and the log continues in the same epoch."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql

from pipeline.capture import source_requirements
from pipeline.capture.catchup import store
from pipeline.capture.catchup.plan import split_backlog
from pipeline.capture.source import failover, slots, sources, timeline
from pipeline.capture.source.failover import FailoverProblem
from pipeline.capture.source.sources import ReplicationSource
from pipeline.capture.source.walsender import SystemIdentity
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError, HistoryDivergedError
from pipeline.log.staging import progress
from pipeline.operate import metrics
from pipeline.operate.status_reader import StatusReader
from pipeline.postgres import connections
from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures.failing_over import FailoverPair, ask
from tests.fixtures.replicating import Replicating, catch_up, refuse, replicate_first, run
from tests.fixtures.slots import wait_until_left
from tests.fixtures.waiting import eventually

REFUSING = """
alter function pg_catalog.pg_create_logical_replication_slot(name, name, bool, bool, bool) rename to plain_slot;
create function refuse(failover bool) returns bool language plpgsql as $$
begin
    if failover then
        raise feature_not_supported using message = 'no failover slots here';
    end if;
    return false;
end $$;
create function pg_catalog.pg_create_logical_replication_slot(
    slot_name name, plugin name, temporary bool default false, twophase bool default false,
    failover bool default false, out slot_name name, out lsn pg_lsn) language sql
    as 'select s.slot_name, s.lsn from pg_catalog.plain_slot($1, $2, $3, $4, public.refuse($5)) s'
"""
"""In its database, a source that creates slots, but none with `failover`."""


def failover_of(dsn: str, slot: str) -> bool | None:
    with connections.connect(dsn, "source") as source:
        found = slots.find(source, slot)
        assert found is not None
        return found.failover


def test_the_log_continues_on_a_promoted_standby(server_directory: Path, database_dsn: str, slot_name: str):
    pair = FailoverPair(server_directory)
    config = settings.load(source_dsn=pair.dsn, database_dsn=database_dsn, slot=slot_name)
    replicate_first(config)
    assert failover_of(config.source, slot_name) is True
    with Replicating(config) as replicating:
        replicating.wait_until_streaming()
        pair.wait_until_synced(slot_name)
    run(config, "insert into t values (2)")
    pair.wait_until_replayed()
    pair.primary.stop("immediate")
    with pytest.raises(DatabaseUnavailableError):
        refuse(config)
    alone = settings.load(source_dsn=pair.standby.tcp_dsn("postgres"), database_dsn=database_dsn, slot=slot_name)
    with pytest.raises(DatabaseUnavailableError, match="is a standby; point PIPELINE_SOURCE_DSN at its primary"):
        refuse(alone)
    pair.promote()
    run(config, "insert into t values (3)")
    catch_up(config, [(0, "1"), (0, "2"), (0, "3")])
    with psycopg.connect(database_dsn) as log:
        assert log.execute("select timeline, epoch from pipeline.sources").fetchone() == (2, 0)


def test_each_misconfiguration_is_named_before_a_failover(server_directory: Path, database_dsn: str, slot_name: str):
    pair = FailoverPair(server_directory)
    there = f"127.0.0.1:{pair.standby.port}"
    config = settings.load(source_dsn=pair.dsn, database_dsn=database_dsn, slot=slot_name)
    replicate_first(config)
    with Replicating(config) as replicating:
        replicating.wait_until_streaming()
        pair.wait_until_synced(slot_name)
    wait_for_report(config, ready=True)
    assert b"pipeline_slot_failover_ready 1.0" in metrics.render(StatusReader().read(config))
    for setting, value, missing in (
        ("sync_replication_slots", "off", "sync_replication_slots = on"),
        ("hot_standby_feedback", "off", "hot_standby_feedback = on"),
        ("primary_slot_name", "", "primary_slot_name"),
        ("primary_conninfo", f"host=127.0.0.1 port={pair.primary.port} user=postgres", "dbname in primary_conninfo"),
    ):
        before = ask(pair.standby, "select current_setting(%s)", setting)
        set_at(pair.standby, setting, value)
        wait_for_report(config, f"{there} cannot copy slots without {missing}", ready=False)
        set_at(pair.standby, setting, before)
    wait_for_report(config, ready=True)
    unset = ["the standbys that answer have copies of slot", "without it, the log may have changes"]
    assert [text.startswith(begin) for text, begin in zip(checked(config), unset, strict=True)] == [True, True]
    set_at(pair.primary, "synchronized_standby_slots", "standby, gone")
    eventually(lambda: "no standby reads gone: " in checked(config)[-1])
    assert awaited_upto(pair) == 0
    set_at(pair.primary, "synchronized_standby_slots", "standby")
    eventually(lambda: (awaited_upto(pair) or 0) > 0)
    set_at(pair.primary, "synchronized_standby_slots", "")
    eventually(lambda: awaited_upto(pair) is None)
    pair.standby.stop()
    wait_for_report(config, f"{there}: source", ready=None)
    pair.standby.start()
    pair.wait_until_replayed()
    pair.primary.stop()
    pair.promote()
    pair.follow()
    former = f'127.0.0.1:{pair.standby.port} keeps its own slot "{slot_name}", from when it was the primary'
    ask(pair.standby, wait_for_report(config, former, ready=False).remedy.partition(": ")[2])
    eventually(lambda: not said(config).startswith(former))
    ask(pair.standby, "select pg_promote()")
    text = f"127.0.0.1:{pair.standby.port} and {there} are both primaries, and the server may read the wrong one"
    wait_for_report(config, text, ready=None)


def wait_for_report(config: Config, begins: str = "", *, ready: bool | None) -> FailoverProblem:
    """Wait until the report is so, and its problems begin with this text; returns the first of them."""

    def reported() -> list[FailoverProblem]:
        found = failover.read(config.source, config.slot)
        assert found is not None
        assert (found.ready, said(config).startswith(begins), bool(found.problems)) == (ready, True, bool(begins))
        return [*found.problems, FailoverProblem("", "")]

    return eventually(reported)[0]


def said(config: Config) -> str:
    found = failover.read(config.source, config.slot)
    return "; ".join(problem.text for problem in found.problems) if found else ""


def checked(config: Config) -> list[str]:
    with connections.connect(config.source, "source") as source:
        return [found.text for found in source_requirements.check_failover(config, config.source, source)]


def awaited_upto(pair: FailoverPair) -> int | None:
    with connections.connect(pair.primary.tcp_dsn("postgres"), "source") as source:
        return failover.read_awaited(source).upto


def set_at(server: EmbeddedServer, setting: LiteralString, value: str) -> None:
    with psycopg.connect(server.tcp_dsn("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("alter system set {} = {}").format(sql.SQL(setting), value))
        connection.execute("select pg_reload_conf()")


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    return settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)


def test_a_start_turns_failover_on_for_an_older_slot(config: Config):
    run(config, "create table t (id int primary key)")
    run(config, f"select pg_create_logical_replication_slot('{config.slot}', 'pgoutput')")
    assert failover_of(config.source, config.slot) is False
    with Replicating(config) as replicating:
        replicating.wait_until_streaming()
    wait_until_left(config.source, config.slot)
    assert failover_of(config.source, config.slot) is True


def test_a_source_that_refuses_failover_gets_a_slot_without(config: Config):
    with psycopg.connect(config.source, autocommit=True) as source:
        source.execute("set allow_system_table_mods = on")
        source.execute(REFUSING)
        with connections.connect(config.source, "source") as session:
            slots.create(session, config.slot)
        assert failover_of(config.source, config.slot) is False


HISTORY = "1\t0/12C\tno recovery target specified\n"
"""Timeline 2 forked at 300."""
STAGE = """
update pipeline.replication_progress set position = %s, commit_lsn = %s, changes = 5 where worker = %s
"""
SEGMENT = """
insert into pipeline.segments (source_id, worker, state, first_lsn, last_lsn, row_count)
values (%(source)s, %(worker)s, 'full', 1, 2, 5)
"""


def test_parts_beyond_the_fork_begin_again_with_the_new_timeline(database_dsn: str):
    stored = ReplicationSource(uuid.uuid4(), 0, "7", "shop", "pipeline", timeline=1)
    now = SystemIdentity("7", 2, 900, "shop")
    with connections.connect(database_dsn, "pipeline database") as pipeline:
        sources.add(pipeline, stored)
        progress.begin(pipeline, stored.id, 0, 100)
        store.add_plan(pipeline, stored.id, 1, split_backlog(100, 400, 3)[1:])
        _, (_, second) = plan = _parts(pipeline)
        for worker, position in ((1, 290), (2, 380)):
            pipeline.execute(STAGE, [position, position - 5, worker])
            pipeline.execute(SEGMENT, {"worker": worker, "source": stored.id})
        pipeline.execute(
            "insert into pipeline.shuffle_progress (source_id, epoch, commit_lsn) values (%s, 0, %s)",
            [stored.id, second],
        )
        reach = timeline.read_reach(pipeline, stored.id)
        with pytest.raises(HistoryDivergedError, match="forked into timeline 2 at 0/12C, before our position 0/17C"):
            timeline.require_continued(stored, now, reach, lambda _: HISTORY)
        with pytest.raises(HistoryDivergedError, match="forked into timeline 2 at 0/12C, before our position 0/17C"):
            timeline.store_timeline(pipeline, stored, now, lambda _: HISTORY)
        assert _parts(pipeline) == plan
        pipeline.execute("update pipeline.shuffle_progress set commit_lsn = %s", [second - 1])
        timeline.store_timeline(pipeline, stored, now, lambda _: HISTORY)
        query = "select worker, position, commit_lsn, changes from pipeline.replication_progress order by 1"
        assert pipeline.execute(query).fetchall() == [(0, 100, 0, 0), (1, 290, 285, 5), (2, second, 0, 0)]
        query = "select worker, state from pipeline.segments where worker > 0 order by 1"
        assert pipeline.execute(query).fetchall() == [(1, "full"), (2, "drained")]
        found = sources.find(pipeline, stored.id)
        assert found is not None
        assert found.timeline == 2


def _parts(pipeline: connections.Connection) -> list[tuple[int, int]]:
    return pipeline.execute("select worker, from_lsn from pipeline.catchup_parts order by 1").fetchall()
