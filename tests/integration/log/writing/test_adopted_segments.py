"""Segments of a backlog become partitions: what readers see, what a crash leaves, and who holds them up."""

from __future__ import annotations

import threading

import psycopg
import pytest

from pipeline.errors import FencedError
from pipeline.log import partitions
from pipeline.log.shuffling import attaching
from pipeline.log.table import DEFAULT
from pipeline.log.writing import partition_run as run
from pipeline.log.writing.log_writer import LogWriter
from pipeline.operate import adoption
from pipeline.postgres.queries import statement
from tests.fixtures.adopting import adopt, batch, begun, events, places, reader, seen, step, waiting, ways, writing
from tests.fixtures.shuffling import move
from tests.fixtures.staged import Staged
from tests.fixtures.waiting import eventually

STAGING = """
    select pid from pg_stat_activity where application_name = 'pipeline staging' and datname = current_database()"""


def test_segments_become_partitions_with_all_that_a_row_says(staged: Staged):
    adopt(staged, batch(staged, 1_000, 10), batch(staged, 2_000, 4), batch(staged, 3_000, 7))
    assert [each[2] for each in waiting(staged)] == [True, True]
    assert events(staged) == []
    staged.shuffle()
    assert events(staged) == places((1_000, 10), (2_000, 4), (3_000, 7))
    assert waiting(staged) == []
    assert ways(staged) == {"adopt": 21}
    attached = partitions.attached(staged.connection, DEFAULT)
    assert len(attached) == 3
    state = staged.connection.execute(
        "select s.commit_lsn, s.last_seq, s.events, t.last_seq, t.events, p.commit_lsn, p.position, p.changes,"
        " pg_sequence_last_value('sequin_events_seq_seq'), s.committed_at = p.committed_at"
        " from pipeline.shuffle_progress s, pipeline.events_tables t, pipeline.replication_progress p"
    ).fetchone()
    last = attached[-1].upper - 1
    assert state == (3_000, last, 22, last, 22, 3_000, 3_001, 22, last, True)


def test_what_waits_of_a_run_is_attached_in_one_transaction(staged: Staged):
    names = "select array_agg(table_name::regclass::oid) from pipeline.adopted_tables where state = 'waiting'"
    attached = "select count(*), count(distinct xmin::text) from pg_inherits where inhrelid = any(%s)"
    adopt(staged, batch(staged, 1_000, 10), batch(staged, 2_000, 250), batch(staged, 3_000, 10))
    tables = staged.connection.execute(names).fetchone()
    assert tables is not None
    staged.shuffle()
    assert staged.connection.execute(attached, tables).fetchone() == (3, 1)
    assert events(staged) == places((1_000, 10), (2_000, 250), (3_000, 10))
    assert ways(staged) == {"adopt": 270}


def test_the_planner_knows_by_what_events_are_found_in_a_segment(staged: Staged):
    """Of the other columns autovacuum may tell it, once the segment is a partition."""
    known = "select attname from pg_stats where tablename = split_part(%s, '.', 2) order by 1"
    adopt(staged, batch(staged, 1_000, 10))
    row = staged.connection.execute(
        "select table_name, reltuples from pipeline.adopted_tables join pg_class c on c.oid = table_name::regclass"
    ).fetchone()
    assert row is not None
    name, count = row
    assert count == 10
    found = [column for (column,) in staged.connection.execute(known, [name.replace('"', "")])]
    assert found == ["action", "record_pk", "seq", "source_database_id", "source_table_oid"]
    staged.shuffle()
    options = "select reloptions from pg_class where oid = %s::regclass"
    assert staged.connection.execute(options, [name]).fetchone() == (None,), "of autovacuum, which was off"


def test_they_are_the_same_events_that_the_shuffler_makes(staged: Staged):
    columns = (
        "commit_lsn % 10000, commit_idx, xid, action, record, changes, exact, unchanged_columns, metadata,"
        " source_epoch,"
        " transaction_annotations, source_table_oid, source_table_schema, source_table_name, source_database_id"
    )
    texts = (b'{"id": "0"}', b'{"js": "{\\"a\\":  1}"}', None, None, None, None)
    one = batch(staged, 11_000, 10, rest=texts, record='{"id": "1", "js": {"a": 1}}')
    adopt(staged, one)
    staged.shuffle()

    async def stage_it(writer: LogWriter) -> None:
        await writer.append(batch(staged, 21_000, 10, rest=texts, record='{"id": "1", "js": {"a": 1}}'), durable=True)

    writing(staged, stage_it, lambda: 0)
    staged.shuffle()
    found = staged.connection.execute(f"select {columns} from sequin_events where seq > 1 order by seq").fetchall()
    assert len(found) == 20
    assert found[:10] == found[10:]
    assert found[0][6] == {"js": '{"a":  1}'}
    assert ways(staged) == {"adopt": 10}


def test_attaching_builds_no_index_and_scans_no_table(staged: Staged):
    adopt(staged, batch(staged, 1_000, 10))
    eventually(
        lambda: staged.connection.execute(STAGING).rowcount == 0
    )  # its scans are counted at its end, if not before
    name = staged.connection.execute("select table_name from pipeline.adopted_tables").fetchone()
    assert name is not None
    files = (
        "select c.relname, pg_relation_filenode(c.oid) from pg_index i join pg_class c on c.oid = i.indexrelid"
        " where i.indrelid = %s::regclass union all select relname, relfilenode from pg_class where oid = %s::regclass"
        " order by 1"
    )
    scans = "select pg_stat_get_numscans(%s::regclass), pg_stat_get_tuples_returned(%s::regclass)"
    worker = "select from pg_stat_activity where application_name = 'pipeline staging' and datname = current_database()"
    before = staged.connection.execute(files, name * 2).fetchall()
    eventually(lambda: staged.connection.execute(worker).rowcount == 0)  # what it has scanned is counted as it ends
    read = staged.connection.execute(scans, name * 2).fetchone()
    assert len(before) == 3
    shuffler = staged.shuffler()
    assert staged.shufflers.connection is not None
    staged.shufflers.connection.execute("set enable_seqscan = off")  # for looks at the newest row
    move(shuffler)
    staged.shufflers.connection.execute("select pg_stat_force_next_flush()")
    staged.shufflers.close()
    staged.connection.execute("select pg_stat_clear_snapshot()")
    assert staged.connection.execute(files, name * 2).fetchall() == before
    assert staged.connection.execute(scans, name * 2).fetchone() == read
    assert staged.connection.execute("select count(*) from pg_index where not indisvalid").fetchone() == (0,)


def test_partitions_come_with_the_watermark(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    """A session that dies or reads between the two finds both or neither."""
    monkeypatch.setattr(attaching, "LOCK_TIMEOUT", "60s")
    adopt(staged, batch(staged, 1_000, 10))
    shuffler = staged.shuffler()
    assert staged.shufflers.connection is not None
    blocked = f"select from pg_locks where not granted and pid = {staged.shufflers.connection.info.backend_pid}"
    state = "select count(*), (select sum(commit_lsn) from pipeline.shuffle_progress)::int from sequin_events"
    with psycopg.connect(staged.dsn) as other, psycopg.connect(staged.dsn, autocommit=True) as looking:
        other.execute("lock table pipeline.ways")
        moving = threading.Thread(target=move, args=[shuffler])
        moving.start()
        eventually(lambda: looking.execute(blocked).rowcount == 1)
        assert looking.execute(state).fetchone() == (1, 100)
        other.rollback()
        moving.join()
        assert looking.execute(state).fetchone() == (11, 1_000)


def test_tables_whose_seqs_were_handed_out_are_moved(staged: Staged):
    """By a session that has written an event behind them: readers may have got it already."""
    adopt(staged, batch(staged, 1_000, 10))
    staged.connection.execute(
        "create table pipeline.theirs partition of sequin_events for values from (90000000) to (90000010);"
        " create temporary table one as select * from sequin_events where seq = 1; update one set seq = 90000000;"
        " insert into sequin_events select * from one; drop table one"
    )
    staged.shuffle()
    assert events(staged)[1:] == places((1_000, 10))
    assert ways(staged) == {"move": 10}
    staged.connection.execute("drop table pipeline.theirs")


def test_a_snapshot_of_between_two_segments_has_a_prefix_of_the_log(staged: Staged):
    old = []

    async def does(writer: LogWriter) -> None:
        for lsn in (1_000, 2_000, 3_000):
            await writer.append(batch(staged, lsn, 10), durable=False)
            old.append(reader(staged))
        await writer.settle(finish=True)

    writing(staged, does)
    staged.shuffle()
    assert [seen(connection) for connection in old] == [
        places((1_000, 10)),
        places((1_000, 10), (2_000, 10)),
        places((1_000, 10), (2_000, 10), (3_000, 10)),
    ]
    for connection in old:
        connection.close()


def test_nothing_of_half_a_transaction_is_ever_seen(staged: Staged):
    """Longer than a table, it is in two tables; one snapshot falls into its middle."""
    old = []

    async def does(writer: LogWriter) -> None:
        await writer.append(begun(staged, 1_000, 150), durable=False)
        await writer.append(begun(staged, 1_000, 150, 150), durable=False)
        old.append(reader(staged))
        await writer.settle()
        assert waiting(staged) == []
        await writer.append(batch(staged, 1_000, 10, 300), durable=False)

    writing(staged, does)
    assert [each[1] - each[0] for each in waiting(staged)] == [149, 159]
    staged.shuffle()
    assert seen(old[0]) == []
    assert events(staged) == places((1_000, 310))
    assert len(partitions.attached(staged.connection, DEFAULT)) >= 3
    old[0].close()


def test_a_crash_before_the_commit_leaves_nothing_and_after_it_all(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    tables = "select count(*) from pg_class where relkind = 'r' and relname ~ '^sequin_events_.*_'"
    before = staged.connection.execute(tables).fetchone()
    with psycopg.connect(staged.dsn, autocommit=True) as other:

        async def does(writer: LogWriter) -> None:
            await writer.append(batch(staged, 1_000, 10), durable=False)
            await writer.append(batch(staged, 2_000, 4), durable=False)
            other.execute(f"select pg_terminate_backend(pid, 60000) from ({STAGING}) s")
            await writer.settle(finish=True)

        with pytest.raises(psycopg.OperationalError):
            writing(staged, does)
    assert before is not None
    assert staged.connection.execute(tables).fetchone() == (before[0] + 1,)
    monkeypatch.setattr(run, "DRAIN_STALLED", 0.05)  # no shuffler moves the waiting rows
    adopt(staged, batch(staged, 2_000, 4))
    staged.shuffle()
    assert events(staged) == places((1_000, 10), (2_000, 4))


def test_an_older_worker_can_store_no_segment(staged: Staged):
    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000, 4), durable=False)
        staged.connection.execute("update pipeline.replication_progress set generation = generation + 1")
        with pytest.raises(FencedError):
            await writer.settle(finish=True)

    writing(staged, does)
    assert waiting(staged) == []
    staged.shuffle()
    assert events(staged) == []


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
def test_what_an_owner_has_added_meanwhile_counts(staged: Staged, change: str, undo: str):
    adopt(staged, batch(staged, 1_000, 10))
    staged.connection.execute(change)
    try:
        staged.shuffle()
        assert events(staged) == places((1_000, 10))
        assert ways(staged) == {"move": 10}
        adopt(staged, batch(staged, 2_000, 10))
        assert waiting(staged) == []
    finally:
        staged.connection.execute(undo)


def test_a_lock_holds_up_the_log_and_is_named(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attaching, "LOCK_TIMEOUT", "50ms")
    monkeypatch.setattr(attaching, "TRY_EVERY", 0.0)
    adopt(staged, batch(staged, 1_000, 10), batch(staged, 2_000, 10))
    name = staged.connection.execute("select min(table_name) from pipeline.adopted_tables").fetchone()
    assert name is not None
    shuffler = staged.shuffler()
    with psycopg.connect(staged.dsn, application_name="a dump") as other:
        other.execute(f"select from {name[0]} limit 1")
        assert step(shuffler) == -1
        found = adoption.read(staged.connection, staged.source)
        assert found is not None
        assert (found.tables, found.events) == (2, 20)
        assert "(a dump) has AccessShareLock" in str(found.held_by)
        assert events(staged) == []
    eventually(lambda: shuffler.step() > 0)
    move(shuffler)
    assert events(staged) == places((1_000, 10), (2_000, 10))
    assert adoption.read(staged.connection, staged.source) is None


def test_a_check_of_an_older_snapshot_finds_nothing_beyond_the_watermark(staged: Staged):
    adopt(staged, batch(staged, 1_000, 10))
    old = reader(staged)
    staged.shuffle()
    beyond = statement("operate.verify", "verify_beyond").format(events="sequin_events")
    assert old.execute("select count(*) from sequin_events").fetchone() == (11,)
    assert old.execute(beyond, {"source": staged.source, "head": 1, "shown": 9}).fetchall() == []
    old.close()
