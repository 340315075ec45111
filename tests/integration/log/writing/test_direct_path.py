"""Batches that are written at once: what they write, what they leave to the shuffler, and what a crash leaves."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from pipeline.errors import FencedError
from pipeline.log.partitions import PARTITION_ROWS
from pipeline.log.staging import rows
from pipeline.log.staging.batch import ChangeBatch
from pipeline.log.staging.choose_path import PathReason, WritePath
from pipeline.log.staging.worker_claim import WorkerClaim, connect_staging
from pipeline.log.table import DEFAULT
from pipeline.log.writing import direct_path, direct_transaction, log_end
from pipeline.log.writing.direct_transaction import MOST_INSERTED, DirectTransaction
from pipeline.log.writing.event_maker import EventMaker
from pipeline.log.writing.log_writer import LogWriter, WritingSettings
from pipeline.postgres.pipelined_copy import OpenCopy
from pipeline.postgres.queries import statement
from tests.fixtures.shuffling import move, move_until
from tests.fixtures.staged import Staged
from tests.fixtures.waiting import eventually

HOW = "select seq, commit_lsn, record from sequin_events order by seq"
AT_ONCE = (WritePath.DIRECT, None)
ROWS = pytest.mark.parametrize("count", [1, MOST_INSERTED + 1])
"""Of batches that are parameters of statements, and that are copied."""
EXACT = b'{"a": "{\\"b\\":1}", "c": "null", "d": "[1]"}'
BLOCKED = "select from pg_locks where not granted and pid = %s"


def wait_for_locks(monkeypatch: pytest.MonkeyPatch, timeout: str) -> None:
    for module in (log_end, direct_transaction, direct_path):
        monkeypatch.setattr(module, "LOCK_TIMEOUT", f"set local lock_timeout = '{timeout}'")
    monkeypatch.setattr(direct_transaction, "LOCK_TIMEOUT_MS", timeout)


@pytest.fixture
def long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is staged because a lock was held for long: its holder may be a process without processor time."""
    wait_for_locks(monkeypatch, "60s")


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is held to the end of the test is not waited for long."""
    wait_for_locks(monkeypatch, "10ms")


def staged_row(
    staged: Staged,
    lsn: int,
    ordinal: int,
    idx: int = 0,
    record: str | None = None,
    rest: Any = None,
    action: bytes = b"insert",
) -> bytes:
    change = rows.change_head(staged._relations["orders"], 7, lsn, action)
    value = (record or f'{{"id": "{lsn}"}}').encode()
    return rows.row(rows.transaction_head(lsn), idx, ordinal, change, str(lsn).encode(), value, rest)


def batch(staged: Staged, lsn: int, count: int = 1, **row: Any) -> ChangeBatch:
    """One transaction of this many rows."""
    made = [staged_row(staged, lsn, lsn + idx, idx, **row) for idx in range(count)]
    return ChangeBatch(made, lsn, lsn, lsn, 1, lsn + 1, lsn, lsn, None, 0)


DIRECTLY = WritingSettings(DEFAULT, "at_once")


def writing(
    staged: Staged, does: Callable[[LogWriter], Awaitable[None]], settings: WritingSettings = DIRECTLY
) -> LogWriter:
    """Run this with a writer that has claimed staging."""

    async def run() -> LogWriter:
        async with await connect_staging(staged.dsn) as connection:
            claim = await WorkerClaim.acquire(connection, staged.source)
            writer = await LogWriter.open(connection, claim, settings)
            await does(writer)
            return writer

    return asyncio.run(run())


def append(staged: Staged, *batches: ChangeBatch) -> LogWriter:
    async def does(writer: LogWriter) -> None:
        for each in batches:
            await writer.append(each, durable=False)

    return writing(staged, does)


def events(staged: Staged) -> list[tuple[int, int]]:
    return [(seq, lsn) for seq, lsn, _ in staged.connection.execute(HOW).fetchall()]


def staged_rows(staged: Staged) -> int:
    found = staged.connection.execute("select count(*) from wal_events").fetchone()
    assert found is not None
    return int(found[0])


def test_a_plain_batch_is_logged_with_its_progress_without_a_segment(staged: Staged):
    writer = append(staged, batch(staged, 1_000), batch(staged, 1_100, 3))
    assert writer.changes == {AT_ONCE: 4}
    assert events(staged)[1:] == [(2, 1_000), (3, 1_100), (4, 1_100), (5, 1_100)]
    state = staged.connection.execute(
        "select s.commit_lsn, s.last_seq, s.events, t.last_seq, t.events, p.commit_lsn, p.position, p.changes,"
        " pg_sequence_last_value('sequin_events_seq_seq'), s.committed_at = p.committed_at"
        " from pipeline.shuffle_progress s, pipeline.events_tables t, pipeline.replication_progress p"
    ).fetchone()
    assert state == (1_100, 5, 5, 5, 5, 1_100, 1_101, 5, 5, True)


def test_what_went_which_way_is_stored_with_the_position(staged: Staged):
    async def does(writer: LogWriter) -> None:
        for lsn, action in ((1_000, b"insert"), (1_100, b"insert"), (1_200, b"truncate")):
            await writer.append(batch(staged, lsn, action=action), durable=False)
        await writer.advance(1_300)

    staged.connection.execute("truncate pipeline.ways")
    writing(staged, does)
    found = staged.connection.execute("select way, reason, changes from pipeline.ways order by way").fetchall()
    assert found == [("at_once", "", 2), ("move", "values", 1)]


def test_progress_is_that_of_an_empty_transaction_at_its_end(staged: Staged):
    """The source is asked for the same commit time when it sends the last transaction again."""
    append(staged, replace(batch(staged, 1_000), transactions=2, position=1_201, commit_lsn=1_200, committed_at=9))
    query = (
        "select p.commit_lsn, extract(epoch from p.committed_at - '2000-01-01+00') * 1000000, s.commit_lsn,"
        " extract(epoch from s.committed_at - '2000-01-01+00') * 1000000"
        " from pipeline.replication_progress p, pipeline.shuffle_progress s"
    )
    assert staged.connection.execute(query).fetchone() == (1_200, 9, 1_000, 1_000)
    assert append(staged, batch(staged, 1_300)).changes == {AT_ONCE: 1}


@ROWS
def test_it_writes_the_same_events_as_the_shuffler(staged: Staged, count: int):
    kinds: Sequence[dict[str, Any]] = (
        {},
        {"action": b"update", "rest": (b'{"a": 1.50}', None, None, None, b"9", None)},
        {"action": b"delete", "record": '{"id": "x", "t": "\\u00e9"}'},
        {"record": '{"a": {"b": 1}, "c": null, "d": [1]}', "rest": (None, EXACT, None, None, None, None)},
        {"record": '{"d": [1]}', "rest": (b'{"d": 2}', b'{"d": "[1]"}', None, None, b"9", None)},
    )
    columns = "commit_idx, xid, source_database_id, source_epoch, source_table_oid, source_table_schema,"
    columns += " source_table_name, record::text, changes::text, exact, action, unchanged_columns, metadata"
    append(staged, *(batch(staged, 1_000 + place, count, **kind) for place, kind in enumerate(kinds)))
    at_once = staged.connection.execute(f"select {columns} from sequin_events where seq > 1 order by seq").fetchall()
    assert at_once[3 * count][9] == {"a": '{"b":1}', "c": "null"}
    assert at_once[4 * count][8:10] == ('{"d": 2}', None)

    async def stage_it(writer: LogWriter) -> None:
        for place, kind in enumerate(kinds):
            record = kind.get("record", f'{{"id": "{1_000 + place}"}}')
            await writer.append(batch(staged, 2_000 + place, count, **{**kind, "record": record}), durable=False)

    writing(staged, stage_it, WritingSettings())
    staged.shuffle()
    query = f"select {columns} from sequin_events where seq > %s order by seq"
    moved = staged.connection.execute(query, [1 + 5 * count]).fetchall()
    assert len(at_once) == 5 * count
    assert at_once == moved


def test_no_value_of_a_row_is_in_the_text_of_a_statement(staged: Staged):
    """Others can read those in pg_stat_activity."""
    row = staged_row(staged, 1_000, 0, record='{"a": {"b": 1}}', rest=(None, EXACT, None, None, None, None))

    async def does(writer: LogWriter) -> None:
        session = OpenCopy(writer._connection)
        maker = EventMaker(staged.source)
        for _ in range(2):  # the first time it asks for the table, too
            assert len(await maker.events([row], 1, session)) == 1
        query = "select query from pg_stat_activity where pid = %s"
        (asked,) = staged.connection.execute(query, [writer._connection.info.backend_pid]).fetchone() or ("",)
        assert "jsonb_each_text" in asked
        assert '"b"' not in asked

    writing(staged, does)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"rest": (None, None, b'["body"]', None, None, None)}, PathReason.VALUES),
        ({"rest": (None, None, None, b"{}", None, None)}, PathReason.VALUES),
        ({"rest": (None, None, None, None, None, b"{}")}, PathReason.VALUES),
        ({"action": b"message"}, PathReason.VALUES),
        ({"action": b"truncate"}, PathReason.VALUES),
        ({"record": "no JSON"}, PathReason.FAILED),
        ({"record": '{"id": "\\u0000"}'}, PathReason.FAILED),
        ({"count": 1_001}, PathReason.LARGE),
    ],
)
def test_what_is_not_plain_is_staged_and_so_is_what_comes_behind_it(
    staged: Staged, row: dict[str, Any], why: PathReason
):
    writer = append(staged, batch(staged, 1_000), batch(staged, 1_100, **row), batch(staged, 9_000))
    assert (writer.changes[AT_ONCE], writer.changes[WritePath.STAGED, why] > 0) == (1, True)
    assert events(staged)[1:] == [(2, 1_000)]
    assert staged_rows(staged) > 1


def test_it_waits_for_the_shuffler_a_moment_and_keeps_the_order(staged: Staged):
    shuffler = staged.shuffler()

    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000, 1_001), durable=False)
        loop, pause = asyncio.get_running_loop(), 0.01
        moving = loop.run_in_executor(None, move, shuffler)
        while writer.changes[AT_ONCE] == 0:
            lsn = 10_000 + sum(writer.changes.values())
            await writer.append(batch(staged, lsn), durable=False)
            if moving.done():  # what was staged since then is still to be moved
                moving = loop.run_in_executor(None, move, shuffler)
            await asyncio.sleep(pause)
            pause *= 1.2  # where the machine is busy, moving takes longer
        await moving

    writing(staged, does)
    move(shuffler)
    found = events(staged)
    assert found == sorted(found)
    assert [seq for seq, _ in found] == list(range(1, len(found) + 1))
    assert [lsn for _, lsn in found] == sorted(lsn for _, lsn in found)


PLACED = """
    with backfill as (
        insert into pipeline.backfills (source_id, epoch, table_oid, table_schema, table_name, kind)
        values (%(source)s, 0, 1, 'public', 'orders', 'initial') returning id
    )
    insert into pipeline.snapshot_ranges (source_id, epoch, backfill_id, relation_oid, table_oid, state, commit_lsn)
    select %(source)s, 0, id, 1, 1, 'placed', 1050 from backfill"""


def test_snapshot_rows_come_before_commits_behind_their_place(staged: Staged):
    """The transaction that says their place has no rows in the stream."""

    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000), durable=False)
        staged.connection.execute(PLACED, {"source": staged.source})
        await writer.append(ChangeBatch([], 0, 0, 0, 1, 1_051, 1_050, 1_050, None, 0, ends_staged=True), durable=False)
        await writer.append(batch(staged, 1_100), durable=False)

    try:
        changes = writing(staged, does).changes
        assert changes.pop((WritePath.STAGED, PathReason.PART)) == 0
        assert changes == {AT_ONCE: 1, (WritePath.STAGED, PathReason.STAGED): 1}
        assert events(staged)[1:] == [(2, 1_000)]
    finally:
        staged.connection.execute("truncate pipeline.backfills cascade")


@ROWS
def test_a_watermark_that_moved_since_it_was_read_is_not_overwritten(staged: Staged, count: int):
    """As by rows that were read, of which the log had something newer: the newest seq says nothing of it."""

    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000), durable=False)
        staged.connection.execute("update pipeline.shuffle_progress set commit_lsn = 1050")
        await writer.append(batch(staged, 1_100, count), durable=False)

    assert writing(staged, does).changes == {AT_ONCE: 1, (WritePath.STAGED, PathReason.CHANGED): count}
    assert events(staged)[1:] == [(2, 1_000)]


@pytest.mark.usefixtures("short_timeouts")
def test_while_the_shuffler_moves_rows_nothing_is_written_at_once(staged: Staged):
    """From when it has found the watermark as planned with, until it commits."""

    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000), durable=False)
        with psycopg.connect(staged.dsn) as shuffling:
            values = {"sequence": DEFAULT.sequence.as_string(shuffling), "watermark": 1_000, "epoch": 0}
            locked = shuffling.execute(
                statement("log.shuffling", "lock_watermark"), {**values, "source": staged.source}
            )
            assert locked.fetchall() == [(2, 2)]
            await writer.append(batch(staged, 1_100), durable=False)

    assert writing(staged, does).changes == {AT_ONCE: 1, (WritePath.STAGED, PathReason.FAILED): 1}
    assert events(staged)[1:] == [(2, 1_000)]


@ROWS
@pytest.mark.usefixtures("short_timeouts")
def test_nobody_hears_of_events_that_are_not_committed(staged: Staged, count: int):
    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000), durable=False)
        with psycopg.connect(staged.dsn) as holder:
            holder.execute("select from pipeline.events_tables for update")  # behind the rows, before the commit
            await writer.append(batch(staged, 1_100, count), durable=False)

    with psycopg.connect(staged.dsn, autocommit=True) as listener:
        listener.execute("listen sequin_events")
        assert writing(staged, does).changes == {AT_ONCE: 1, (WritePath.STAGED, PathReason.FAILED): count}
        staged.shuffle()  # it says what there was, and what it has moved
        heard = {json.loads(each.payload)["seq"] for each in listener.notifies(timeout=60, stop_after=3)}
    assert heard == {2, events(staged)[-1][0]}
    assert [lsn for _, lsn in events(staged)[1:]] == [1_000, *[1_100] * count]


@ROWS
def test_an_older_writer_can_write_nothing_at_once(staged: Staged, count: int):
    async def run() -> None:
        async with await connect_staging(staged.dsn) as old, await connect_staging(staged.dsn) as new:
            zombie = await LogWriter.open(old, await WorkerClaim.acquire(old, staged.source), DIRECTLY)
            await zombie.append(batch(staged, 1_000), durable=False)
            await WorkerClaim.acquire(new, staged.source)
            with pytest.raises(FencedError):
                await zombie.append(batch(staged, 1_100, count), durable=False)

    asyncio.run(run())
    assert events(staged)[1:] == [(2, 1_000)]
    assert staged_rows(staged) == 1  # the one that the shuffler has moved


@pytest.mark.usefixtures("long_timeouts")
def test_a_writer_killed_before_its_commit_leaves_nothing(staged: Staged):
    async def run() -> None:
        async with await connect_staging(staged.dsn) as connection:
            writer = await LogWriter.open(connection, await WorkerClaim.acquire(connection, staged.source), DIRECTLY)
            await writer.append(batch(staged, 1_000), durable=False)
            with psycopg.connect(staged.dsn) as holder:
                holder.execute("select from pipeline.shuffle_progress for update")
                pid = connection.info.backend_pid
                waiting = asyncio.create_task(writer.append(batch(staged, 1_100), durable=False))
                await asyncio.to_thread(eventually, lambda: staged.connection.execute(BLOCKED, [pid]).rowcount == 1)
                staged.connection.execute("select pg_terminate_backend(%s, 60000)", [pid])
                with pytest.raises(psycopg.OperationalError):
                    await waiting

    asyncio.run(run())
    assert append(staged, batch(staged, 1_100)).changes == {AT_ONCE: 1}
    assert events(staged)[1:] == [(2, 1_000), (3, 1_100)]


def test_an_error_behind_its_commit_is_not_taken_for_one_before_it(
    staged: Staged, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """As where the queue of notifications is full: the events are there, and are neither staged nor counted again."""

    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000), durable=False)
        with monkeypatch.context() as patched:  # Postgres refuses a payload of that length
            patched.setattr(DirectTransaction, "_payload", lambda *_: b"x" * 9_000)
            await writer.append(batch(staged, 1_100, 2), durable=False)
            await writer.append(batch(staged, 1_200, MOST_INSERTED + 1), durable=False)
        await writer.append(batch(staged, 1_300), durable=False)

    added = 4 + MOST_INSERTED + 1
    assert writing(staged, does).changes == {AT_ONCE: added}
    assert [lsn for _, lsn in events(staged)[1:]] == [1_000, *[1_100] * 2, *[1_200] * (MOST_INSERTED + 1), 1_300]
    assert staged_rows(staged) == 1  # the one that the shuffler has moved
    counted = "select p.changes, s.events from pipeline.replication_progress p, pipeline.shuffle_progress s"
    assert staged.connection.execute(counted).fetchone() == (added + 1, added + 1)
    assert len([each for each in caplog.records if "could not be woken" in each.message]) == 1


@pytest.mark.usefixtures("short_timeouts")
def test_a_session_that_locks_the_log_holds_up_no_staging(staged: Staged):
    with psycopg.connect(staged.dsn) as owner:
        owner.execute("lock table sequin_events in access exclusive mode")
        assert append(staged, batch(staged, 1_000)).changes == {(WritePath.STAGED, PathReason.PARTITION): 1}
    staged.shuffle()
    assert events(staged)[1:] == [(2, 1_000)]


@pytest.mark.parametrize("table", ["shuffle_progress", "ways", "relations", "consumer_progress", "snapshot_ranges"])
@pytest.mark.usefixtures("short_timeouts")
def test_a_session_that_locks_a_table_beside_the_log_holds_up_no_staging(staged: Staged, table: str):
    async def does(writer: LogWriter) -> None:
        with psycopg.connect(staged.dsn) as owner:
            owner.execute(f"lock table pipeline.{table} in access exclusive mode".encode())
            await writer.append(batch(staged, 1_000), durable=False)
            await writer.append(batch(staged, 1_100), durable=False)
            await writer.advance(1_200)

    assert writing(staged, does).changes.total() == 2
    staged.shuffle()
    assert events(staged)[1:] == [(2, 1_000), (3, 1_100)]


def test_seqs_that_somebody_has_taken_are_not_given_again(staged: Staged):
    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000), durable=False)
        staged.connection.execute("select setval('sequin_events_seq_seq', 5000)")
        await writer.append(batch(staged, 1_100), durable=False)
        staged.shuffle()
        await writer.append(batch(staged, 1_200), durable=False)

    writer = writing(staged, does)
    assert writer.changes == {AT_ONCE: 2, (WritePath.STAGED, PathReason.CHANGED): 1}
    assert events(staged)[1:] == [(2, 1_000), (5_001, 1_100), (5_002, 1_200)]


def test_it_lets_the_shuffler_make_the_next_partition_once(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    """From the middle of one on."""
    monkeypatch.setattr(log_end, "REQUEST_EVERY", 0.0)
    middle = PARTITION_ROWS // 2

    async def does(writer: LogWriter) -> None:
        staged.connection.execute("select setval('sequin_events_seq_seq', %s)", [middle])
        await writer.append(batch(staged, 1_000), durable=False)
        staged.shuffle()
        for lsn in (1_100, 1_200, 1_300):
            await writer.append(batch(staged, lsn), durable=False)

    assert writing(staged, does).changes == {(WritePath.STAGED, PathReason.PARTITION): 1, AT_ONCE: 3}
    assert events(staged)[1:] == [(middle + 1 + place, 1_000 + 100 * place) for place in range(4)]


@pytest.mark.parametrize(
    ("change", "undo"),
    [
        ("create rule r as on insert to sequin_events do also select 1", "drop rule r on sequin_events"),
        (
            "create function f() returns trigger language plpgsql as 'begin return null; end';"
            " create trigger t before insert on sequin_events for each row execute function f()",
            "drop function f cascade",
        ),
        ("update pipeline.routes set id = default", None),
    ],
)
def test_a_table_that_is_changed_meanwhile_is_not_written(staged: Staged, change: str, undo: str | None):
    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000), durable=False)
        staged.connection.execute(change.encode())
        await writer.append(batch(staged, 1_100), durable=False)
        writer._direct_path._failed_until = 0.0
        await writer.append(batch(staged, 1_200), durable=False)

    try:
        writer = writing(staged, does)
        assert writer.changes[AT_ONCE] == 1
        assert writer.changes[WritePath.STAGED, PathReason.FAILED] == 1
        assert events(staged)[1:] == [(2, 1_000)]
    finally:
        if undo:
            staged.connection.execute(undo.encode())


def test_a_rule_and_a_trigger_that_are_gone_hinder_nothing(staged: Staged):
    """Postgres goes on saying of the table that it has some."""
    staged.connection.execute(
        "create function f() returns trigger language plpgsql as 'begin return null; end';"
        " create trigger t before insert on sequin_events for each row execute function f();"
        " create rule r as on insert to sequin_events do also select 1;"
        " drop rule r on sequin_events; drop function f cascade"
    )
    said = "select relhasrules and relhastriggers from pg_class where oid = 'sequin_events'::regclass"
    assert staged.connection.execute(said).fetchone() == (True,)
    assert append(staged, batch(staged, 1_000)).changes == {AT_ONCE: 1}
    assert events(staged)[1:] == [(2, 1_000)]


def test_what_was_prepared_while_there_was_a_rule_writes_once_it_is_gone(staged: Staged):
    """Postgres keeps the plan of an insert that does nothing, and does not notice when it would do something."""

    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000), durable=False)
        staged.connection.execute("create rule r as on insert to sequin_events do instead nothing")
        await writer.append(batch(staged, 1_100, 3), durable=False)
        staged.connection.execute("drop rule r on sequin_events")
        writer._direct_path._failed_until = 0.0
        await asyncio.to_thread(staged.shuffle)
        await writer.append(batch(staged, 1_200, 3), durable=False)

    assert writing(staged, does).changes == {AT_ONCE: 4, (WritePath.STAGED, PathReason.FAILED): 3}
    assert [lsn for _, lsn in events(staged)[1:]] == [1_000, *[1_100] * 3, *[1_200] * 3]


def _read(dsn: str, seen: list[tuple[int, int]], over: threading.Event) -> None:
    """Poll the log until this is over, and again; of each transaction from LSN 1,000 on there are three events."""
    query = "select seq, commit_lsn from sequin_events where seq > %s order by seq"
    with psycopg.connect(dsn, autocommit=True) as reader:
        while True:
            is_last = over.is_set()
            seen.extend(reader.execute(query, [seen[-1][0] if seen else 0]).fetchall())
            newest = [lsn for _, lsn in seen if lsn == seen[-1][1] and lsn >= 1_000]
            if len(newest) not in (0, 3):
                seen.append((-1, -1))
            if is_last:
                return


@pytest.mark.usefixtures("long_timeouts")
def test_readers_that_poll_see_whole_transactions_in_order_whoever_writes(staged: Staged):
    seen: list[tuple[int, int]] = []
    over, stopped, shuffler = threading.Event(), threading.Event(), staged.shuffler()
    reading = threading.Thread(target=_read, args=(staged.dsn, seen, over))
    shuffling = threading.Thread(target=move_until, args=(stopped, shuffler))
    reading.start()
    shuffling.start()

    async def does(writer: LogWriter) -> None:
        for number in range(300):
            mixed = {"rest": (None, None, None, b"{}", None, None)} if number % 40 == 7 else {}
            await writer.append(batch(staged, 1_000 + number, 3, **mixed), durable=False)

    writer = writing(staged, does)
    stopped.set()
    shuffling.join()
    move(shuffler)
    over.set()
    reading.join()
    assert writer.changes[AT_ONCE] > 0
    assert writer.changes[WritePath.STAGED, PathReason.VALUES] > 0
    assert seen == events(staged)
    assert [lsn for _, lsn in seen[1:]] == [1_000 + number for number in range(300) for _ in range(3)]
