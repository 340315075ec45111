"""No seq that a reader may have seen is given to another event: where the log may have gone back, it jumps."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pipeline.client import EventLog
from pipeline.errors import CursorExpiredError
from pipeline.log import jumps, partitions, shapes, table_setup
from pipeline.log.page import EventFilter, EventPageRequest, OldestKeptSeq
from pipeline.log.retention import policy
from pipeline.log.table import DEFAULT, EventsTable, next_seq
from pipeline.postgres import connections, migrations
from tests.fixtures import followers
from tests.fixtures.adopting import adopt, batch
from tests.fixtures.postgres import Cluster
from tests.fixtures.shuffling import now, shuffle
from tests.fixtures.staged import Staged, Table, insert, staging_of

JUMPS = "select before, after, reason from pipeline.seq_jumps order by after"
SEQS = "select seq from sequin_events order by seq"
TABLES = """
    select string_agg(c.oid::regclass::text, ', ') from pg_class c
    where c.relkind in ('r', 'p') and c.relnamespace in ('pipeline'::regnamespace, 'public'::regnamespace)"""
OTHER_PLACES = {
    "cluster": ("system_identifier = '1'", "in another cluster"),
    "timeline": ("timeline = timeline + 1", "went from timeline 2 to 1"),
    "database": ("database_oid = 1", "a copy of another one"),
    "dump": ("table_oid = 1", "restored from a dump"),
}


@pytest.fixture(scope="module")
def staging(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("orders")) as made:
        yield made


@pytest.fixture
def staged_log(staged: Staged) -> Staged:
    """One event is in the log, and a change is staged behind it."""
    staged.connection.execute("truncate pipeline.seq_jumps")
    staged.moved(insert("orders", id="1"))
    staged.commit(insert("orders", id="2"))
    return staged


def ask(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query.encode()).fetchall()


def seqs(dsn: str) -> list[int]:
    return [seq for (seq,) in ask(dsn, SEQS)]


def require_jumped(dsn: str, reason: str, since: int) -> int:
    """The seq of the only event behind the only jump."""
    ((before, after, why),) = ask(dsn, JUMPS)
    assert before == 1
    assert since <= after <= now()
    assert reason in why
    assert seqs(dsn) == [1, after]
    return int(after)


def test_the_first_start_stores_the_logs_place_and_later_ones_never_jump(staged_log: Staged):
    staged_log.connection.execute("update pipeline.identity set table_oid = null")  # as after the upgrade
    for _ in range(3):
        staged_log.shufflers.close()
        staged_log.moved(insert("orders", id="3"))
    assert seqs(staged_log.dsn) == [1, 2, 3, 4, 5]
    assert ask(staged_log.dsn, JUMPS) == []


def test_a_copied_database_jumps(staged_log: Staged, cluster: Cluster):
    staged_log.disconnect()
    since = now()
    with cluster.database("copied", staged_log.dsn.rpartition("dbname=")[2].split()[0]) as copied:
        staged_log.reconnect()
        staged_log.shuffle()
        shuffle(copied, staged_log.source)
        assert seqs(staged_log.dsn) == [1, 2]
        require_jumped(copied, "a copy of another one", since)


def test_a_dump_jumps_each_time_it_is_restored(staged_log: Staged, cluster: Cluster, tmp_path: Path):
    """The same as data alone: the tables keep their oids then."""
    assert cluster.server is not None
    tools, dump = cluster.server.bin_dir, tmp_path / "dump"
    subprocess.run([tools / "pg_dump", "-Fc", "-f", dump, staged_log.dsn], check=True, capture_output=True)
    since, after = now(), []
    with cluster.database("restored") as first, cluster.database("restored") as second:
        for dsn, options in ((first, []), (second, []), (second, ["--data-only", "--disable-triggers"])):
            if options:
                ((tables,),) = ask(dsn, TABLES)
                with psycopg.connect(dsn) as connection:
                    connection.execute(f"truncate {tables}".encode())
            subprocess.run([tools / "pg_restore", *options, "-d", dsn, dump], check=True, capture_output=True)
            shuffle(dsn, staged_log.source)
            after.append(require_jumped(dsn, "restored", since))
    assert after[0] < after[1] < after[2]


@pytest.mark.parametrize("part", OTHER_PLACES)
def test_each_part_of_the_place_tells(staged_log: Staged, part: str):
    other, reason = OTHER_PLACES[part]
    staged_log.connection.execute(
        f"update pipeline.identity set {other}, written_by = pg_current_xact_id()::xid".encode()
    )
    since = now()
    staged_log.shuffle()
    require_jumped(staged_log.dsn, reason, since)


def test_a_table_above_the_clock_jumps_by_the_time_since_its_newest_event(staged_log: Staged):
    above = now() + 10**12
    staged_log.connection.execute("select setval('sequin_events_seq_seq', %s)", [above - 1])
    staged_log.shuffle()
    ask_for = "update sequin_events set inserted_at = inserted_at - interval '1 hour' where seq = %s"
    staged_log.connection.execute(ask_for, [above])
    with connections.connect(staged_log.dsn, "pipeline database") as connection:
        jumps.jump(connection, [DEFAULT], now, "test")
    ((before, after, _),) = ask(staged_log.dsn, JUMPS)
    assert before == above
    assert above + 3600 * 10**6 <= after < above + 4000 * 10**6


def test_a_jump_begins_behind_the_newest_event_not_at_the_sequence(staged_log: Staged):
    staged_log.connection.execute("select setval('sequin_events_seq_seq', 700)")
    staged_log.connection.execute("update pipeline.identity set timeline = 99")
    staged_log.shuffle()
    require_jumped(staged_log.dsn, "timeline", 0)


def test_two_jumps_without_an_event_between_them(staged_log: Staged):
    with connections.connect(staged_log.dsn, "pipeline database") as connection:
        jumps.jump(connection, [DEFAULT], now, "first")
        jumps.jump(connection, [DEFAULT], now, "second")
    staged_log.shuffle()
    (first, second) = ask(staged_log.dsn, JUMPS)
    assert (first[0], second[0]) == (1, 1)
    assert first[1] < second[1]
    assert seqs(staged_log.dsn) == [1, second[1]]
    with psycopg.connect(staged_log.dsn) as connection:
        for after, upto, count in ((0, second[1], 2), (1, second[1] - 1, 0), (5, second[1] + 4, 5), (0, 1, 1)):
            found = connection.execute("select pipeline.seqs_between('public.sequin_events', %s, %s)", [after, upto])
            assert found.fetchone() == (count,)


@pytest.fixture
def jumped(staged_log: Staged) -> tuple[int, int]:
    """The newest event before a jump and the first one behind it, in another partition."""
    staged_log.connection.execute("update pipeline.identity set timeline = 99")
    staged_log.shufflers.close()
    staged_log.shuffle()
    ((before, after, _),) = ask(staged_log.dsn, JUMPS)
    return before, after


def test_a_reader_inside_a_jump_is_told_where_to_go_on(staged_log: Staged, jumped: tuple[int, int]):
    before, after = jumped
    events = EventLog(staged_log.dsn)
    for inside in (before + 1, before + 70_000, after - 1):
        with pytest.raises(CursorExpiredError, match=f"was lost.*continue after {before}") as refused:
            events.read(after=inside)
        assert refused.value.floor == before
        with pytest.raises(psycopg.errors.NumericValueOutOfRange, match="of a log that was lost"):
            staged_log.connection.execute("select pipeline.start_seq(%s)", [str(inside)])
    assert [event.seq for event in events.read(after=before)] == [after]
    assert list(events.read(after=after)) == []


def test_no_page_floor_or_position_ends_inside_a_jump(staged_log: Staged, jumped: tuple[int, int]):
    before, after = jumped
    with connections.connect(staged_log.dsn, "pipeline database") as connection:
        page = shapes.JSON.read(connection, EventPageRequest(0, 100, 10**6, EventFilter(("none.*",))))
        assert page.upto == before
        consumer = "select position from pipeline.create_consumer('c', kind => 'cursor', start => '1')"
        connection.execute(consumer)
        assert connection.execute("select pipeline.advance('c', %s)", [after - 1]).fetchone() == (before,)
        connection.execute("select pipeline.drop_consumer('c')")
        first = partitions.attached(connection, DEFAULT)[0]
        connection.execute(sql.SQL("alter table sequin_events detach partition {}").format(first.identifier))
        try:
            assert OldestKeptSeq(DEFAULT).read(connection) == before + 1
            assert connection.execute("select pipeline.log_floor()").fetchone() == (before,)
            policy.record(connection, DEFAULT, first.upper)
            assert policy.dropped(connection, DEFAULT).below == before + 1
        finally:
            connection.execute("delete from pipeline.retention")
            attach = "alter table sequin_events attach partition {} for values from ({}) to ({})"
            connection.execute(sql.SQL(attach).format(first.identifier, first.lower, first.upper))


def test_what_waits_to_become_partitions_is_moved(staged_log: Staged):
    staged_log.shuffle()
    adopt(staged_log, batch(staged_log, 50_000, 200))
    waiting = staged_log.connection.execute(
        "select min(first_seq) from pipeline.adopted_tables where state = 'waiting'"
    )
    assert waiting.fetchone() is not None
    staged_log.connection.execute("update pipeline.identity set timeline = 99")
    staged_log.shufflers.close()
    staged_log.shuffle()
    ((before, after, _),) = ask(staged_log.dsn, JUMPS)
    assert before == 2
    assert seqs(staged_log.dsn) == [1, 2, *range(after, after + 200)]


def test_no_run_begins_above_the_seq_that_a_jump_would_take(staged_log: Staged):
    staged_log.shuffle()
    staged_log.connection.execute("select setval('sequin_events_seq_seq', %s)", [now() + 10**9])
    adopt(staged_log, batch(staged_log, 50_000, 200))
    assert ask(staged_log.dsn, "select count(*) from pipeline.adopted_tables where state = 'waiting'") == [(0,)]


def test_a_table_that_is_created_behind_a_jump_begins_there(staged_log: Staged):
    other = EventsTable("public", "later_events")
    with connections.connect(staged_log.dsn, "pipeline database") as connection:
        jumps.jump(connection, [DEFAULT], now, "test")
        table_setup.ensure(connection, other)
        assert next_seq(connection, other) == ask(staged_log.dsn, JUMPS)[0][1]
        connection.execute("drop table public.later_events")


@pytest.mark.long
def test_a_session_on_a_standby_that_is_promoted_jumps(server_directory: Path):
    """Its lock is refused before that, so it cannot find out too early; it lives through the promotion."""
    primary, standby = followers.primary_and_standby(server_directory)
    with psycopg.connect(primary.tcp_dsn("postgres"), autocommit=True) as connection:
        connection.execute("create database log")
    migrations.upgrade(primary.tcp_dsn("log"))
    made = Staged(primary.tcp_dsn("log"), [Table("orders")])
    made.moved(insert("orders", id="1"))
    made.commit(insert("orders", id="2"))
    deadline = time.monotonic() + 60
    while ask(
        primary.tcp_dsn("postgres"),
        "select count(*) from pg_stat_replication where replay_lsn >= pg_current_wal_flush_lsn()",
    ) != [(1,)]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with connections.connect(standby.tcp_dsn("log"), "pipeline database") as session:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            jumps.require_continued(session, [DEFAULT], now)
        since = now()
        with psycopg.connect(standby.tcp_dsn("postgres"), autocommit=True) as connection:
            connection.execute("alter system set primary_conninfo = ''")
            connection.execute("select pg_reload_conf()")
        while ask(standby.tcp_dsn("postgres"), "select count(*) from pg_stat_wal_receiver") != [(0,)]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        made.shuffle()
        assert seqs(made.dsn) == [1, 2]
        made.close()
        primary.stop()
        ask(standby.tcp_dsn("postgres"), "select pg_promote()")
        jumps.require_continued(session, [DEFAULT], now)
    shuffle(standby.tcp_dsn("log"), made.source)
    require_jumped(standby.tcp_dsn("log"), "timeline 1 to 2", since)
