"""A backlog that becomes partitions: what readers see, what a crash leaves, and what is moved instead."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from pipeline.capture.replication import staging_pump
from pipeline.capture.replication.batch_builder import BatchBuilder
from pipeline.capture.replication.confirm_rule import ConfirmRule
from pipeline.capture.replication.feedback import Feedback
from pipeline.capture.replication.staging_pump import StagingPump
from pipeline.errors import Fenced, ReadAgain
from pipeline.log import partitions
from pipeline.log.table import DEFAULT
from pipeline.operate import adoption
from pipeline.postgres.queries import statement
from pipeline.shuffle import poison, retrying
from pipeline.shuffle.adoption import attaching, backlog_writer, run
from pipeline.shuffle.adoption.backlog_writer import BacklogWriter
from pipeline.shuffle.head_writer import HeadWriter
from pipeline.shuffle.worker import Shuffler
from pipeline.staging import rows
from pipeline.staging.writer import Writer
from tests.fixtures.adopting import adopt, batch, begun, writing
from tests.fixtures.postgres import Cluster
from tests.fixtures.shuffling import move, shuffle
from tests.fixtures.staged import Staged, Table, insert, staging_of
from tests.fixtures.waiting import PATIENCE, eventually

EVENTS = "select commit_lsn, commit_idx from sequin_events order by seq"
STAGING = """
    select pid from pg_stat_activity where application_name = 'pipeline staging' and datname = current_database()"""
WORKING = "select from pg_stat_activity where application_name = 'pipeline shuffle' and wait_event = 'PgSleep'"
WAITING = "select first_seq, last_seq, attaches from pipeline.adopted_tables where state = 'waiting' order by first_seq"


@pytest.fixture(scope="module")
def made(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("orders")) as log:
        yield log


@pytest.fixture
def log(made: Staged) -> Staged:
    """One transaction is in the log, which a shuffler has opened."""
    made.reset()
    made.moved(insert("orders", id="1"))
    return made


def events(log: Staged) -> list[tuple[int, int]]:
    return log.connection.execute(EVENTS).fetchall()[1:]


def waiting(log: Staged) -> list[tuple[int, int, bool]]:
    return log.connection.execute(WAITING).fetchall()


def ways(log: Staged) -> dict[str, int]:
    return dict(log.connection.execute("select way, sum(changes)::int from pipeline.ways group by 1").fetchall())


def places(*transactions: tuple[int, int]) -> list[tuple[int, int]]:
    return [(lsn, idx) for lsn, count in transactions for idx in range(count)]


def test_segments_become_partitions_with_all_that_a_row_says(log: Staged):
    adopt(log, batch(log, 1_000, 10), batch(log, 2_000, 4), batch(log, 3_000, 7))
    assert [each[2] for each in waiting(log)] == [True, True]
    assert events(log) == []
    log.shuffle()
    assert events(log) == places((1_000, 10), (2_000, 4), (3_000, 7))
    assert waiting(log) == []
    assert ways(log) == {"adopt": 21}
    attached = partitions.attached(log.connection, DEFAULT)
    assert len(attached) == 3
    state = log.connection.execute(
        "select s.commit_lsn, s.last_seq, s.events, t.last_seq, t.events, p.commit_lsn, p.position, p.changes,"
        " pg_sequence_last_value('sequin_events_seq_seq'), s.committed_at = p.committed_at"
        " from pipeline.shuffle_progress s, pipeline.events_tables t, pipeline.replication_progress p"
    ).fetchone()
    last = attached[-1].upper - 1
    assert state == (3_000, last, 22, last, 22, 3_000, 3_001, 22, last, True)


def test_what_waits_of_a_run_is_attached_in_one_transaction(log: Staged):
    names = "select array_agg(table_name::regclass::oid) from pipeline.adopted_tables where state = 'waiting'"
    attached = "select count(*), count(distinct xmin::text) from pg_inherits where inhrelid = any(%s)"
    adopt(log, batch(log, 1_000, 10), batch(log, 2_000, 250), batch(log, 3_000, 10))
    tables = log.connection.execute(names).fetchone()
    assert tables is not None
    log.shuffle()
    assert log.connection.execute(attached, tables).fetchone() == (3, 1)
    assert events(log) == places((1_000, 10), (2_000, 250), (3_000, 10))
    assert ways(log) == {"adopt": 270}


def test_the_planner_knows_by_what_events_are_found_in_a_segment(log: Staged):
    """Of the other columns autovacuum may tell it, once the segment is a partition."""
    known = "select attname from pg_stats where tablename = split_part(%s, '.', 2) order by 1"
    adopt(log, batch(log, 1_000, 10))
    row = log.connection.execute(
        "select table_name, reltuples from pipeline.adopted_tables join pg_class c on c.oid = table_name::regclass"
    ).fetchone()
    assert row is not None
    name, count = row
    assert count == 10
    found = [column for (column,) in log.connection.execute(known, [name.replace('"', "")])]
    assert found == ["action", "record_pk", "seq", "source_database_id", "source_table_oid"]
    log.shuffle()
    options = "select reloptions from pg_class where oid = %s::regclass"
    assert log.connection.execute(options, [name]).fetchone() == (None,), "of autovacuum, which was off"


def test_they_are_the_same_events_that_the_shuffler_makes(log: Staged):
    columns = (
        "commit_lsn % 10000, commit_idx, xid, action, record, changes, exact, unchanged_columns, metadata,"
        " source_epoch,"
        " transaction_annotations, source_table_oid, source_table_schema, source_table_name, source_database_id"
    )
    texts = (b'{"id": "0"}', b'{"js": "{\\"a\\":  1}"}', None, None, None, None)
    one = batch(log, 11_000, 10, rest=texts, record='{"id": "1", "js": {"a": 1}}')
    adopt(log, one)
    log.shuffle()

    async def staged(writer: Writer, _: BacklogWriter) -> None:
        writer.backlog = None
        await writer.append(batch(log, 21_000, 10, rest=texts, record='{"id": "1", "js": {"a": 1}}'), durable=True)

    writing(log, staged)
    log.shuffle()
    found = log.connection.execute(f"select {columns} from sequin_events where seq > 1 order by seq").fetchall()
    assert len(found) == 20
    assert found[:10] == found[10:]
    assert found[0][6] == {"js": '{"a":  1}'}
    assert ways(log) == {"adopt": 10}


def test_attaching_builds_no_index_and_scans_no_table(log: Staged):
    adopt(log, batch(log, 1_000, 10))
    eventually(lambda: log.connection.execute(STAGING).rowcount == 0)  # its scans are counted at its end, if not before
    name = log.connection.execute("select table_name from pipeline.adopted_tables").fetchone()
    assert name is not None
    files = (
        "select c.relname, pg_relation_filenode(c.oid) from pg_index i join pg_class c on c.oid = i.indexrelid"
        " where i.indrelid = %s::regclass union all select relname, relfilenode from pg_class where oid = %s::regclass"
        " order by 1"
    )
    scans = "select pg_stat_get_numscans(%s::regclass), pg_stat_get_tuples_returned(%s::regclass)"
    worker = "select from pg_stat_activity where application_name = 'pipeline staging' and datname = current_database()"
    before = log.connection.execute(files, name * 2).fetchall()
    eventually(lambda: log.connection.execute(worker).rowcount == 0)  # what it has scanned is counted as it ends
    read = log.connection.execute(scans, name * 2).fetchone()
    assert len(before) == 3
    shuffler = log.shuffler()
    assert log.shufflers.connection is not None
    log.shufflers.connection.execute("set enable_seqscan = off")  # for looks at the newest row
    move(shuffler)
    log.shufflers.connection.execute("select pg_stat_force_next_flush()")
    log.shufflers.close()
    log.connection.execute("select pg_stat_clear_snapshot()")
    assert log.connection.execute(files, name * 2).fetchall() == before
    assert log.connection.execute(scans, name * 2).fetchone() == read
    assert log.connection.execute("select count(*) from pg_index where not indisvalid").fetchone() == (0,)


def test_partitions_come_with_the_watermark(log: Staged, monkeypatch: pytest.MonkeyPatch):
    """Whoever dies between, or looks, finds both or neither."""
    monkeypatch.setattr(attaching, "LOCK_TIMEOUT", "60s")
    adopt(log, batch(log, 1_000, 10))
    shuffler = log.shuffler()
    assert log.shufflers.connection is not None
    blocked = f"select from pg_locks where not granted and pid = {log.shufflers.connection.info.backend_pid}"
    state = "select count(*), (select sum(commit_lsn) from pipeline.shuffle_progress)::int from sequin_events"
    with psycopg.connect(log.dsn) as other, psycopg.connect(log.dsn, autocommit=True) as looking:
        other.execute("lock table pipeline.ways")
        moving = threading.Thread(target=move, args=[shuffler])
        moving.start()
        eventually(lambda: looking.execute(blocked).rowcount == 1)
        assert looking.execute(state).fetchone() == (1, 100)
        other.rollback()
        moving.join()
        assert looking.execute(state).fetchone() == (11, 1_000)


def test_tables_whose_seqs_were_handed_out_are_moved(log: Staged):
    """By somebody who has written an event behind them: readers may have got that already."""
    adopt(log, batch(log, 1_000, 10))
    log.connection.execute(
        "create table pipeline.theirs partition of sequin_events for values from (90000000) to (90000010);"
        " create temporary table one as select * from sequin_events where seq = 1; update one set seq = 90000000;"
        " insert into sequin_events select * from one; drop table one"
    )
    log.shuffle()
    assert events(log)[1:] == places((1_000, 10))
    assert ways(log) == {"move": 10}
    log.connection.execute("drop table pipeline.theirs")


def seen(connection: psycopg.Connection[Any]) -> list[tuple[int, int]]:
    return connection.execute(EVENTS).fetchall()[1:]


def reader(log: Staged) -> psycopg.Connection[Any]:
    """A transaction whose snapshot is of now."""
    connection = psycopg.connect(log.dsn)
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.execute("select pg_current_snapshot()")
    return connection


def test_a_snapshot_of_between_two_segments_has_a_prefix_of_the_log(log: Staged):
    old = []

    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        for lsn in (1_000, 2_000, 3_000):
            await writer.append(batch(log, lsn, 10), durable=False)
            old.append(reader(log))
        await backlog.finish()

    writing(log, does)
    log.shuffle()
    assert [seen(connection) for connection in old] == [
        places((1_000, 10)),
        places((1_000, 10), (2_000, 10)),
        places((1_000, 10), (2_000, 10), (3_000, 10)),
    ]
    for connection in old:
        connection.close()


def test_a_snapshot_of_before_rows_were_moved_does_not_have_the_segment_behind_them(
    log: Staged, monkeypatch: pytest.MonkeyPatch
):
    """No run begins before all that is staged is in the log; else that reader would see what comes behind it alone."""
    monkeypatch.setattr(run, "DRAIN_STALLED", 0.05)
    log.commit(insert("orders", id="2"))
    shuffler = log.shuffler()
    old = []

    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        await writer.append(batch(log, 10_000, 10), durable=False)
        await backlog.finish()
        assert waiting(log) == []
        old.append(reader(log))
        await asyncio.to_thread(move, shuffler)
        monkeypatch.setattr(run, "DRAIN_STALLED", 60.0)
        await writer.append(batch(log, 20_000, 10), durable=False)
        await backlog.finish()
        assert len(waiting(log)) == 1

    writing(log, does)
    move(shuffler)
    assert [seen(connection) for connection in old] == [[]]
    assert events(log) == [(200, 0), *places((10_000, 10), (20_000, 10))]
    assert ways(log) == {"adopt": 10}
    for connection in old:
        connection.close()


def test_a_shuffler_that_is_at_work_is_waited_for(log: Staged, monkeypatch: pytest.MonkeyPatch):
    """Else a backlog of large transactions is never adopted: when one is moved the next has begun to be staged."""
    monkeypatch.setattr(run, "DRAIN_STALLED", 0.3)
    log.commit(insert("orders", id="2"))
    shuffler = log.shuffler()
    large = psycopg.connect(log.dsn, application_name="pipeline shuffle")

    def work() -> None:
        with pytest.raises(psycopg.errors.QueryCanceled):
            large.execute("select pg_sleep(300)")

    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        working = asyncio.create_task(asyncio.to_thread(work))
        await asyncio.to_thread(eventually, lambda: log.connection.execute(WORKING).rowcount == 1)
        adopting = asyncio.create_task(writer.append(batch(log, 10_000, 10), durable=False))
        await asyncio.sleep(0.4)
        await asyncio.to_thread(move, shuffler)
        await adopting
        await backlog.finish()
        large.cancel()
        await working

    writing(log, does)
    large.close()
    move(shuffler)
    assert events(log) == [(200, 0), *places((10_000, 10))]
    assert ways(log) == {"adopt": 10}


def test_the_first_shuffler_is_waited_for(made: Staged, monkeypatch: pytest.MonkeyPatch):
    """A new server begins to read at once: its shuffler has a moment yet to open the log."""
    monkeypatch.setattr(run, "DRAIN_STALLED", 60.0)
    made.reset()

    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        adopting = asyncio.create_task(writer.append(batch(made, 1_000, 10), durable=False))
        await asyncio.sleep(0.05)
        assert not adopting.done()
        await asyncio.to_thread(shuffle, made.dsn)
        await adopting
        await backlog.finish()

    writing(made, does)
    made.shuffle()
    assert ways(made) == {"adopt": 10}


def test_a_segment_ends_once_the_source_is_hardly_ahead(log: Staged, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(backlog_writer, "SETTLE_AFTER", 3_600.0)
    ahead = 10**9

    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        nonlocal ahead
        await writer.append(batch(log, 1_000, 5), durable=False)
        await backlog.settle()
        assert (backlog.is_open, waiting(log)) == (True, [])
        ahead = 10
        await backlog.settle()
        assert (backlog.is_open, len(waiting(log))) == (False, 1)

    writing(log, does, lambda: ahead)


def test_nothing_of_half_a_transaction_is_ever_seen(log: Staged):
    """It is longer than a table, so it is in two; one snapshot is of its middle."""
    old = []

    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        await writer.append(begun(log, 1_000, 150), durable=False)
        await writer.append(begun(log, 1_000, 150, 150), durable=False)
        old.append(reader(log))
        await backlog.settle()
        assert waiting(log) == []
        await writer.append(batch(log, 1_000, 10, 300), durable=False)

    writing(log, does)
    assert [each[1] - each[0] for each in waiting(log)] == [149, 159]
    log.shuffle()
    assert seen(old[0]) == []
    assert events(log) == places((1_000, 310))
    assert len(partitions.attached(log.connection, DEFAULT)) >= 3
    old[0].close()


def test_what_only_the_shuffler_can_write_comes_between_two_runs(log: Staged):
    annotated = (None, None, None, b"{}", None, None)
    shuffler = log.shuffler()

    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        await writer.append(batch(log, 1_000, 10), durable=False)
        await writer.append(batch(log, 2_000, 1, rest=annotated), durable=False)
        await asyncio.to_thread(move, shuffler)
        await writer.append(batch(log, 3_000, 10), durable=False)
        await backlog.finish()

    writing(log, does)
    move(shuffler)
    assert events(log) == [*places((1_000, 10)), (2_000, 0), *places((3_000, 10))]
    assert ways(log) == {"adopt": 20}


def test_of_a_batch_the_transactions_before_such_a_change_are_taken(log: Staged):
    annotated = (None, None, None, b"{}", None, None)
    whole = [batch(log, 1_000, 6, 4), batch(log, 2_000, 4), batch(log, 3_000, 3, rest=annotated), batch(log, 4_000, 2)]
    staged = rows.renumbered([each for part in whole for each in part.rows], 1_004)
    several = replace(whole[-1], rows=staged, first_lsn=1_000, first_ordinal=1_004, transactions=4, ends_staged=True)

    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        await writer.append(begun(log, 1_000, 4), durable=False)
        await writer.append(several, durable=True)
        assert (writer.position, backlog.is_open) == (4_001, False)

    progress = "select position, commit_lsn, changes, transactions - %s from pipeline.replication_progress"
    before = log.connection.execute("select transactions from pipeline.replication_progress").fetchone()
    writing(log, does)
    assert waiting(log)[0][1] - waiting(log)[0][0] == 13
    assert log.connection.execute(progress, before).fetchone() == (4_001, 4_000, 20, 4)
    log.shuffle()
    assert events(log) == places((1_000, 10), (2_000, 4), (3_000, 3), (4_000, 2))
    assert ways(log) == {"adopt": 14}


def test_a_transaction_that_turns_out_to_be_for_the_shuffler_is_read_again_and_staged(log: Staged):
    annotated = (None, None, None, b"{}", None, None)

    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        await writer.append(batch(log, 1_000, 4), durable=False)
        await writer.append(begun(log, 2_000, 5), durable=False)
        with pytest.raises(ReadAgain):
            await writer.append(batch(log, 2_000, 5, 5, rest=annotated), durable=False)
        assert (writer.position, backlog.is_open) == (1_001, False)

    writing(log, does)
    assert [each[1] - each[0] for each in waiting(log)] == [3]
    log.shuffle()
    adopt(log, batch(log, 2_000, 10))
    assert waiting(log) == []
    log.shuffle()
    assert events(log) == places((1_000, 4), (2_000, 10))


@pytest.mark.parametrize("refused", [b'{"id": "\\u0000"}', b"a row that is too long"])
def test_what_the_server_refuses_is_read_again_and_left_to_the_shuffler(
    log: Staged, refused: bytes, monkeypatch: pytest.MonkeyPatch
):
    bad = batch(log, 2_000, 1, record=refused.decode())

    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        with pytest.raises(ReadAgain):
            for each in (batch(log, 1_000, 9), bad, batch(log, 3_000, 1)):
                await writer.append(each, durable=False)
            await backlog.finish()
        assert (writer.position, backlog.is_open) == (100, False)

    writing(log, does)
    monkeypatch.setattr(run, "DRAIN_STALLED", 0.05)  # the row stays staged
    adopt(log, batch(log, 1_000, 9), bad, batch(log, 3_000, 1))
    shuffler = log.shuffler()
    move(shuffler)
    assert events(log) == places((1_000, 9))
    assert shuffler.poison is not None


def test_a_crash_before_the_commit_leaves_nothing_and_after_it_all(log: Staged, monkeypatch: pytest.MonkeyPatch):
    tables = "select count(*) from pg_class where relkind = 'r' and relname ~ '^sequin_events_.*_'"
    before = log.connection.execute(tables).fetchone()
    with psycopg.connect(log.dsn, autocommit=True) as other:

        async def does(writer: Writer, backlog: BacklogWriter) -> None:
            await writer.append(batch(log, 1_000, 10), durable=False)
            await writer.append(batch(log, 2_000, 4), durable=False)
            other.execute(f"select pg_terminate_backend(pid, 60000) from ({STAGING}) s")
            await backlog.finish()

        with pytest.raises(psycopg.OperationalError):
            writing(log, does)
    assert before is not None
    assert log.connection.execute(tables).fetchone() == (before[0] + 1,)
    monkeypatch.setattr(run, "DRAIN_STALLED", 0.05)  # nobody moves what waits
    adopt(log, batch(log, 2_000, 4))
    log.shuffle()
    assert events(log) == places((1_000, 10), (2_000, 4))


def test_an_older_worker_can_store_no_segment(log: Staged):
    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        await writer.append(batch(log, 1_000, 4), durable=False)
        log.connection.execute("update pipeline.replication_progress set generation = generation + 1")
        with pytest.raises(Fenced):
            await backlog.finish()

    writing(log, does)
    assert waiting(log) == []
    log.shuffle()
    assert events(log) == []


def step(shuffler: Shuffler) -> int:
    """One that does something."""
    while (moved := shuffler.step()) == 0:
        continue
    return moved


def trigger(log: Staged) -> None:
    log.connection.execute(
        "create function public.kept() returns trigger language plpgsql as 'begin return new; end';"
        " create trigger kept before insert on sequin_events for each row execute function public.kept()"
    )


def untrigger(log: Staged) -> None:
    log.connection.execute("drop function public.kept cascade")


def test_what_cannot_be_attached_any_more_is_moved_and_so_is_all_that_is_behind_it(log: Staged):
    """Else a snapshot of before the move would have what comes behind these rows, and not them."""
    shuffler = log.shuffler()
    old = []

    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        await writer.append(batch(log, 1_000, 10), durable=False)
        await writer.append(batch(log, 2_000, 10), durable=False)
        await writer.append(batch(log, 3_000, 4), durable=False)
        trigger(log)
        await asyncio.to_thread(step, shuffler)
        untrigger(log)
        await backlog.finish()
        old.append(reader(log))
        await asyncio.to_thread(move, shuffler)
        await writer.append(batch(log, 4_000, 10), durable=False)

    writing(log, does)
    move(shuffler)
    assert events(log) == places((1_000, 10), (2_000, 10), (3_000, 4), (4_000, 10))
    assert ways(log) == {"move": 24, "adopt": 10}
    assert seen(old[0]) == places((1_000, 10))
    old[0].close()
    query = "select count(*) from pipeline.adopted_tables"
    assert log.connection.execute(query).fetchone() == (0,)


@pytest.mark.parametrize(
    ("change", "undo"),
    [
        ("alter table sequin_events add mine int", "alter table sequin_events drop mine"),
        ("create index mine on sequin_events (committed_at)", "drop index mine"),
        ("create publication mine for table sequin_events", "drop publication mine"),
        ("create publication mine for all tables", "drop publication mine"),
        ("alter table sequin_events enable row level security", "alter table sequin_events disable row level security"),
        (
            "alter table sequin_events add check (seq > 0)",
            "alter table sequin_events drop constraint sequin_events_seq_check",
        ),
        (
            "create rule mine as on insert to sequin_events do also notify mine",
            "drop rule mine on sequin_events",
        ),
    ],
)
def test_what_an_owner_has_added_meanwhile_counts(log: Staged, change: str, undo: str):
    adopt(log, batch(log, 1_000, 10))
    log.connection.execute(change)
    try:
        log.shuffle()
        assert events(log) == places((1_000, 10))
        assert ways(log) == {"move": 10}
        adopt(log, batch(log, 2_000, 10))
        assert waiting(log) == []
    finally:
        log.connection.execute(undo)


def test_a_lock_holds_up_the_log_and_is_named(log: Staged, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attaching, "LOCK_TIMEOUT", "50ms")
    monkeypatch.setattr(attaching, "TRY_EVERY", 0.0)
    adopt(log, batch(log, 1_000, 10), batch(log, 2_000, 10))
    name = log.connection.execute("select min(table_name) from pipeline.adopted_tables").fetchone()
    assert name is not None
    shuffler = log.shuffler()
    with psycopg.connect(log.dsn, application_name="a dump") as other:
        other.execute(f"select from {name[0]} limit 1")
        assert step(shuffler) == -1
        found = adoption.read(log.connection, log.source)
        assert found is not None
        assert (found.tables, found.events) == (2, 20)
        assert "(a dump) has AccessShareLock" in str(found.held_by)
        assert events(log) == []
    eventually(lambda: shuffler.step() > 0)
    move(shuffler)
    assert events(log) == places((1_000, 10), (2_000, 10))
    assert adoption.read(log.connection, log.source) is None


def test_a_dead_letter_is_retried_behind_a_backlog(log: Staged):
    parking = log.shuffler(on_poison="park")
    log.commit(insert("orders", id="2", bad="\0"))
    move(parking)
    letters = "select state from pipeline.dead_letters"
    assert log.connection.execute(letters).fetchall() == [("parked",)]
    log.connection.execute("update pipeline.dead_letters set record = '{}'")

    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        await writer.append(batch(log, 1_000, 10), durable=False)
        log.connection.execute("update pipeline.dead_letters set state = 'retrying'")
        await asyncio.to_thread(retrying.retry, parking._connection, log.source, parking._targets)
        assert log.connection.execute(letters).fetchall() == [("retrying",)]
        await writer.append(batch(log, 2_000, 10), durable=False)
        await backlog.finish()

    writing(log, does)
    move(parking)
    assert ways(log) == {"adopt": 20}
    assert events(log)[1:21] == places((1_000, 10), (2_000, 10))
    assert log.connection.execute(letters).fetchall() == [("retried",)]
    assert len(events(log)) == 22


@pytest.mark.parametrize("passes", ["commit_lsn = 2000", "commit_lsn = 0, epoch = epoch + 1"])
def test_an_older_version_cannot_pass_what_waits(log: Staged, passes: str):
    """It knows of no tables that wait, and would move what is staged behind them."""
    adopt(log, batch(log, 1_000, 10), batch(log, 2_000, 10))
    log.connection.execute("update pipeline.shuffle_progress set commit_lsn = 999")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="come next in the log") as refused:
        log.connection.execute(f"update pipeline.shuffle_progress set {passes}")
    assert not poison.is_poison(refused.value)
    log.shuffle()
    log.connection.execute(f"update pipeline.shuffle_progress set {passes}")
    assert events(log) == places((1_000, 10), (2_000, 10))


def test_nothing_is_written_at_once_while_a_segment_waits(log: Staged):
    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        head = HeadWriter(writer._connection, writer, DEFAULT)
        writer.at_once = head
        writer.backlog = None
        await writer.append(batch(log, 500), durable=False)
        writer.backlog = backlog
        await writer.append(batch(log, 1_000, 10), durable=False)
        await backlog.finish()
        writer.backlog = None
        await writer.append(batch(log, 2_000), durable=False)

    writing(log, does)
    log.shuffle()
    assert events(log) == [(500, 0), *places((1_000, 10)), (2_000, 0)]


def test_a_check_of_an_older_snapshot_finds_nothing_beyond_the_watermark(log: Staged):
    adopt(log, batch(log, 1_000, 10))
    old = reader(log)
    log.shuffle()
    beyond = statement("operate.verify", "verify_beyond").format(events="sequin_events")
    assert old.execute("select count(*) from sequin_events").fetchone() == (11,)
    assert old.execute(beyond, {"source": log.source, "head": 1, "shown": 9}).fetchall() == []
    old.close()


def test_a_worker_in_the_midst_of_a_segment_lets_others_run_while_somebody_waits_for_its_position(log: Staged):
    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        await writer.append(begun(log, 1_000, 5), durable=False)
        idle = ConfirmRule(writer.position)
        idle.held = True
        idle.resume(0)
        idle.want(0)
        never: Any = None
        pump = StagingPump(BatchBuilder(idle), writer, idle, Feedback(never, idle, int), lambda: False)
        pump.begin()
        running = asyncio.create_task(pump.run())
        await asyncio.sleep(0.1)
        assert (running.done(), backlog.is_open, writer.position) == (False, True, 100)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await backlog.finish()
        assert writer.position == 100

    writing(log, does)


def test_what_is_held_is_stored_soon_after_the_last_that_came(log: Staged, monkeypatch: pytest.MonkeyPatch):
    """Not only when it is time to confirm something."""
    monkeypatch.setattr(staging_pump, "CONFIRM_EVERY", 3_600.0)
    monkeypatch.setattr(backlog_writer, "SETTLE_AFTER", 0.05)

    async def does(writer: Writer, backlog: BacklogWriter) -> None:
        await writer.append(batch(log, 1_000, 4), durable=False)
        idle = ConfirmRule(writer.position)
        idle.held = True
        idle.resume(0)
        never: Any = None
        pump = StagingPump(BatchBuilder(idle), writer, idle, Feedback(never, idle, int), lambda: False)
        pump.begin()
        running = asyncio.create_task(pump.run())
        async with asyncio.timeout(PATIENCE):
            while True:
                if not backlog.is_open:
                    break
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)  # it may have begun to tell a source of it
        assert writer.position == 1_001

    writing(log, does)
    log.shuffle()
    assert events(log) == places((1_000, 4))
