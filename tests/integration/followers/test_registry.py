"""What is stored of followers, what appliers report, and that retention keeps the log for them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from pipeline.cli.render import retention as retention_report
from pipeline.errors import FollowerError, UnknownFollowerError
from pipeline.followers import registry
from pipeline.followers.operating import status as followers
from pipeline.followers.registry import (
    ApplierReport,
    DatabaseIdentity,
    FollowerOptions,
    FollowerTable,
    NamedTable,
    RegisteredPosition,
)
from pipeline.log.readers import ReaderRegistry
from pipeline.operate import status
from pipeline.postgres import connections, role_locks
from pipeline.postgres.connections import Connection
from tests.fixtures.aging_log import KEEP, PARTITION, AgingLog, aging_log
from tests.fixtures.small_log import SOURCE, add_table

OLD = 1.1 * KEEP
TABLES = [NamedTable(16384, "public", "orders"), NamedTable(16385, "public", "items")]


def add(connection: Connection, name: str = "reports", seq: int = 0, tables: list[NamedTable] = TABLES) -> int:
    """Returns its id."""
    database = DatabaseIdentity("1", 5, "shop")
    registry.add(connection, SOURCE, name, "host=db", FollowerOptions(), database, RegisteredPosition(seq), tables)
    [found] = registry.find(connection, name)
    return found.id


@pytest.fixture
def aged_log(database_dsn: str) -> Iterator[AgingLog]:
    with aging_log(database_dsn) as made:
        add_table(made.connection)
        yield made


@pytest.fixture
def old(aged_log: AgingLog) -> AgingLog:
    """Three partitions of events that are old enough to go."""
    aged_log.add(3 * PARTITION, OLD)
    return aged_log


@pytest.mark.parametrize("paused", [False, True])
def test_retention_waits_for_a_follower_and_names_it(
    old: AgingLog, paused: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    add(old.connection, seq=120)
    if paused:
        followers.pause(old.connection, "reports")
    assert old.drop().below == 101
    found = old.retention_status()
    [holder] = found.held_by
    remedy = "`pipeline followers resume reports`" if paused else "see why with `pipeline followers show reports`"
    assert (holder.kind, holder.name, holder.position) == ("follower", "reports", 120)
    assert holder.remedy == f"{remedy}, or do without: `pipeline followers remove reports`"
    retention_report.show_dry_run(found)
    assert f'follower "reports" is at 120; {holder.remedy}' in " ".join(capsys.readouterr().out.split())

    followers.remove(old.connection, "reports")
    assert old.drop().below == 201, "the newest partition is written to"
    assert old.retention_status().held_by == []


def test_retention_goes_on_as_a_follower_does(old: AgingLog) -> None:
    first, second = add(old.connection, "first", 0), add(old.connection, "second", 0)
    assert old.drop().below == 1
    registry.store_report(old.connection, first, ApplierReport("following", position=RegisteredPosition(300)))
    registry.store_report(old.connection, second, ApplierReport("stopped", "so", position=RegisteredPosition(150)))
    assert old.drop().below == 101


def test_it_lags_as_any_reader_does(old: AgingLog) -> None:
    add(old.connection, seq=120)
    [lagging] = ReaderRegistry(old.connection, old.table).lagging()
    assert (lagging.kind, lagging.name, lagging.seqs, lagging.paused) == ("follower", "reports", 180, False)
    followers.pause(old.connection, "reports")
    [lagging] = ReaderRegistry(old.connection, old.table).lagging()
    assert (lagging.active, lagging.paused) == (False, True)


def test_how_far_the_log_is_beyond_it(old: AgingLog) -> None:
    add(old.connection, seq=120)
    found = followers.show(old.connection, "reports")
    assert (found.seq, found.made_seq, found.lag_seqs) == (120, 300, 180)
    assert 0 <= found.lag_seconds < 600
    old.connection.execute("update public.sequin_events set committed_at = now() - interval '1 hour' where seq = 121")
    assert 3600 <= followers.show(old.connection, "reports").lag_seconds < 4200
    assert status.collect(old.config.with_databases("host=/nowhere", old.config.database)).followers[0].lag_seqs == 180


def test_what_an_applier_reports(aged_log: AgingLog) -> None:
    number = add(aged_log.connection)
    at = datetime(2026, 11, 25, tzinfo=UTC)
    assert registry.store_report(
        aged_log.connection, number, ApplierReport("following", position=RegisteredPosition(7, 70, at))
    )
    assert registry.store_report(
        aged_log.connection, number, ApplierReport("stopped", "so", "do that", RegisteredPosition(5, 50, at))
    )
    registry.add_tables(aged_log.connection, number, [NamedTable(9, "public", "new")])
    said = FollowerTable(16385, "public", "things", "stopped", "why", "how")
    registry.store_table_states(aged_log.connection, number, [said])
    [found] = registry.find(aged_log.connection)
    assert (found.state, found.reason, found.remedy) == ("stopped", "so", "do that")
    assert (found.seq, found.commit_lsn, found.committed_at) == (7, 70, at)
    assert found.reported_at is not None
    assert [(each.table_name, each.state, each.reason) for each in found.table_states] == [
        ("new", "waiting", None),
        ("orders", "waiting", None),
        ("things", "stopped", "why"),
    ]
    registry.store_report(aged_log.connection, number, ApplierReport("waiting", "away"))
    [found] = registry.find(aged_log.connection)
    assert (found.state, found.seq, found.commit_lsn) == ("waiting", 7, 70)
    registry.remove(aged_log.connection, "reports")
    assert not registry.store_report(aged_log.connection, number, ApplierReport("following"))
    assert registry.find(aged_log.connection) == []


def test_a_table_that_was_renamed(aged_log: AgingLog) -> None:
    number = add(aged_log.connection)
    registry.store_table_states(aged_log.connection, number, [FollowerTable(16384, "public", "orders", "following")])
    registry.add_tables(aged_log.connection, number, [NamedTable(16384, "shop", "purchases")])
    [found] = registry.find(aged_log.connection)
    assert {(each.table_schema, each.table_name): each.state for each in found.table_states} == {
        ("shop", "purchases"): "following",
        ("public", "items"): "waiting",
    }


def test_a_report_does_not_bring_a_forgotten_table_back(aged_log: AgingLog) -> None:
    """Its copies and its log are followed by several threads: one may forget what another one has still to say."""
    number = add(aged_log.connection)
    registry.forget_tables(aged_log.connection, number, [16384])
    said = [FollowerTable(oid, "public", "renamed", "following") for oid in (16384, 16385)]
    registry.store_table_states(aged_log.connection, number, said)
    [found] = registry.find(aged_log.connection, "reports")
    assert [(each.table_oid, each.table_name, each.state) for each in found.table_states] == [
        (16385, "renamed", "following")
    ]


def test_pause_and_resume(aged_log: AgingLog) -> None:
    add(aged_log.connection)
    assert followers.pause(aged_log.connection, "reports").state == "paused"
    with pytest.raises(FollowerError, match='follower "reports" is paused already'):
        followers.pause(aged_log.connection, "reports")
    assert followers.resume(aged_log.connection, "reports").state == "waiting"
    with pytest.raises(FollowerError, match='follower "reports" is not paused already'):
        followers.resume(aged_log.connection, "reports")
    for change in (followers.pause, followers.resume, followers.remove, followers.show):
        with pytest.raises(UnknownFollowerError, match='there is no follower "x"; `pipeline followers list`'):
            change(aged_log.connection, "x")


def test_a_server_that_applies_is_seen(aged_log: AgingLog, database_dsn: str) -> None:
    number = add(aged_log.connection)
    registry.store_report(aged_log.connection, number, ApplierReport("following"))
    assert followers.show(aged_log.connection, "reports").reason == followers.NO_SERVER
    with connections.connect(database_dsn, "pipeline database") as holder:
        assert role_locks.try_acquire(holder, followers.ROLE)
        role_locks.report(holder, followers.ROLE, "test:1", 1, "running")
        assert followers.show(aged_log.connection, "reports").state == "following"
