"""Runs of segments: when one begins and ends, and what is moved instead."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import psycopg
import pytest

from pipeline.errors import ReadAgainError
from pipeline.log.shuffling import retrying
from pipeline.log.staging import progress, rows
from pipeline.log.writing import partition_run as run
from pipeline.log.writing import partitioned_backlog
from pipeline.log.writing.log_writer import LogWriter, WriteResult
from pipeline.log.writing.segment_sizes import SegmentSizes
from pipeline.postgres import connections
from tests.fixtures.adopting import adopt, batch, begun, events, places, reader, seen, step, waiting, ways, writing
from tests.fixtures.shuffling import move, shuffle
from tests.fixtures.staged import Staged, insert
from tests.fixtures.waiting import eventually

WORKING = "select from pg_stat_activity where application_name = 'pipeline shuffle' and wait_event = 'PgSleep'"


def test_a_reader_older_than_moved_rows_sees_no_segment_after_them(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    """No run begins before all that is staged is in the log; else that reader would see what comes behind it alone."""
    monkeypatch.setattr(run, "DRAIN_STALLED", 0.05)
    staged.commit(insert("orders", id="2"))
    shuffler = staged.shuffler()
    old = []

    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 10_000, 10), durable=False)
        await writer.settle(finish=True)
        assert waiting(staged) == []
        old.append(reader(staged))
        await asyncio.to_thread(move, shuffler)
        monkeypatch.setattr(run, "DRAIN_STALLED", 60.0)
        await writer.append(batch(staged, 20_000, 10), durable=False)
        await writer.settle(finish=True)
        assert len(waiting(staged)) == 1

    writing(staged, does)
    move(shuffler)
    assert [seen(connection) for connection in old] == [[]]
    assert events(staged) == [(200, 0), *places((10_000, 10), (20_000, 10))]
    assert ways(staged) == {"adopt": 10}
    for connection in old:
        connection.close()


def test_a_shuffler_that_is_at_work_is_waited_for(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    """Else a backlog of large transactions is never adopted: when one is moved the next has begun to be staged."""
    monkeypatch.setattr(run, "DRAIN_STALLED", 0.3)
    staged.commit(insert("orders", id="2"))
    shuffler = staged.shuffler()
    large = psycopg.connect(staged.dsn, application_name="pipeline shuffle")

    def work() -> None:
        with pytest.raises(psycopg.errors.QueryCanceled):
            large.execute("select pg_sleep(300)")

    async def does(writer: LogWriter) -> None:
        working = asyncio.create_task(asyncio.to_thread(work))
        await asyncio.to_thread(eventually, lambda: staged.connection.execute(WORKING).rowcount == 1)
        adopting = asyncio.create_task(writer.append(batch(staged, 10_000, 10), durable=False))
        await asyncio.sleep(0.4)
        await asyncio.to_thread(move, shuffler)
        await adopting
        await writer.settle(finish=True)
        large.cancel()
        await working

    writing(staged, does)
    large.close()
    move(shuffler)
    assert events(staged) == [(200, 0), *places((10_000, 10))]
    assert ways(staged) == {"adopt": 10}


def test_the_first_shuffler_is_waited_for(made: Staged, monkeypatch: pytest.MonkeyPatch):
    """A new server begins to read at once: its shuffler has a moment yet to open the log."""
    monkeypatch.setattr(run, "DRAIN_STALLED", 60.0)
    made.reset()

    async def does(writer: LogWriter) -> None:
        adopting = asyncio.create_task(writer.append(batch(made, 1_000, 10), durable=False))
        await asyncio.sleep(0.05)
        assert not adopting.done()
        await asyncio.to_thread(shuffle, made.dsn)
        await adopting
        await writer.settle(finish=True)

    writing(made, does)

    def moved() -> None:
        made.shuffle()
        assert ways(made) == {"adopt": 10}

    eventually(moved)


def test_a_segment_ends_once_the_source_is_hardly_ahead(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(partitioned_backlog, "SETTLE_AFTER", 3_600.0)
    ahead = 10**9

    async def does(writer: LogWriter) -> None:
        nonlocal ahead
        await writer.append(batch(staged, 1_000, 5), durable=False)
        assert ((await writer.settle()).holds, waiting(staged)) == (True, [])
        ahead = 10
        assert ((await writer.settle()).holds, len(waiting(staged))) == (False, 1)

    writing(staged, does, lambda: ahead)


def test_what_only_the_shuffler_can_write_comes_between_two_runs(staged: Staged):
    annotated = (None, None, None, b"{}", None, None)
    shuffler = staged.shuffler()

    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000, 10), durable=False)
        await writer.append(batch(staged, 2_000, 1, rest=annotated), durable=False)
        await asyncio.to_thread(move, shuffler)
        await writer.append(batch(staged, 3_000, 10), durable=False)
        await writer.settle(finish=True)

    writing(staged, does)
    move(shuffler)
    assert events(staged) == [*places((1_000, 10)), (2_000, 0), *places((3_000, 10))]
    assert ways(staged) == {"adopt": 20}


def test_of_a_batch_the_transactions_before_such_a_change_are_taken(staged: Staged):
    annotated = (None, None, None, b"{}", None, None)
    whole = [
        batch(staged, 1_000, 6, 4),
        batch(staged, 2_000, 4),
        batch(staged, 3_000, 3, rest=annotated),
        batch(staged, 4_000, 2),
    ]
    rows_to_stage = rows.renumbered([each for part in whole for each in part.rows], 1_004)
    several = replace(
        whole[-1], rows=rows_to_stage, first_lsn=1_000, first_ordinal=1_004, transactions=4, ends_staged=True
    )

    async def does(writer: LogWriter) -> None:
        await writer.append(begun(staged, 1_000, 4), durable=False)
        assert await writer.append(several, durable=True) == WriteResult(4_001, is_durable=True, holds=False)

    progress = "select position, commit_lsn, changes, transactions - %s from pipeline.replication_progress"
    before = staged.connection.execute("select transactions from pipeline.replication_progress").fetchone()
    writing(staged, does)
    assert waiting(staged)[0][1] - waiting(staged)[0][0] == 13
    assert staged.connection.execute(progress, before).fetchone() == (4_001, 4_000, 20, 4)
    staged.shuffle()
    assert events(staged) == places((1_000, 10), (2_000, 4), (3_000, 3), (4_000, 2))
    assert ways(staged) == {"adopt": 14}


def test_a_transaction_for_the_shuffler_alone_is_read_again_and_staged(staged: Staged):
    annotated = (None, None, None, b"{}", None, None)

    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000, 4), durable=False)
        await writer.append(begun(staged, 2_000, 5), durable=False)
        with pytest.raises(ReadAgainError):
            await writer.append(batch(staged, 2_000, 5, 5, rest=annotated), durable=False)
        assert progress.stored_position(staged.connection, staged.source) == 1_001

    writing(staged, does)
    assert [each[1] - each[0] for each in waiting(staged)] == [3]
    staged.shuffle()
    adopt(staged, batch(staged, 2_000, 10))
    assert waiting(staged) == []
    staged.shuffle()
    assert events(staged) == places((1_000, 4), (2_000, 10))


@pytest.mark.parametrize("refused", [b'{"id": "\\u0000"}', b"a row that is too long"])
def test_what_the_server_refuses_is_read_again_and_left_to_the_shuffler(
    staged: Staged, refused: bytes, monkeypatch: pytest.MonkeyPatch
):
    bad = batch(staged, 2_000, 1, record=refused.decode())

    async def does(writer: LogWriter) -> None:
        with pytest.raises(ReadAgainError):
            for each in (batch(staged, 1_000, 9), bad, batch(staged, 3_000, 1)):
                await writer.append(each, durable=False)
            await writer.settle(finish=True)
        assert progress.stored_position(staged.connection, staged.source) == 100

    writing(staged, does)
    monkeypatch.setattr(run, "DRAIN_STALLED", 0.05)  # the row stays staged
    adopt(staged, batch(staged, 1_000, 9), bad, batch(staged, 3_000, 1))
    shuffler = staged.shuffler()
    move(shuffler)
    assert events(staged) == places((1_000, 9))
    assert shuffler.poison is not None


def trigger(staged: Staged) -> None:
    staged.connection.execute(
        "create function public.kept() returns trigger language plpgsql as 'begin return new; end';"
        " create trigger kept before insert on sequin_events for each row execute function public.kept()"
    )


def untrigger(staged: Staged) -> None:
    staged.connection.execute("drop function public.kept cascade")


def test_a_segment_that_cannot_be_attached_is_moved_with_all_behind_it(staged: Staged):
    """Else a snapshot of before the move would have what comes behind these rows, and not them."""
    shuffler = staged.shuffler()
    old = []

    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000, 10), durable=False)
        await writer.append(batch(staged, 2_000, 10), durable=False)
        await writer.append(batch(staged, 3_000, 4), durable=False)
        trigger(staged)
        await asyncio.to_thread(step, shuffler)
        untrigger(staged)
        await writer.settle(finish=True)
        old.append(reader(staged))
        await asyncio.to_thread(move, shuffler)
        await writer.append(batch(staged, 4_000, 10), durable=False)

    writing(staged, does)
    move(shuffler)
    assert events(staged) == places((1_000, 10), (2_000, 10), (3_000, 4), (4_000, 10))
    assert ways(staged) == {"move": 24, "adopt": 10}
    assert seen(old[0]) == places((1_000, 10))
    old[0].close()
    query = "select count(*) from pipeline.adopted_tables"
    assert staged.connection.execute(query).fetchone() == (0,)


def test_a_dead_letter_is_retried_behind_a_backlog(staged: Staged):
    parking = staged.shuffler(on_poison="park")
    staged.commit(insert("orders", id="2", bad="\0"))
    move(parking)
    letters = "select state from pipeline.dead_letters"
    assert staged.connection.execute(letters).fetchall() == [("parked",)]
    staged.connection.execute("update pipeline.dead_letters set record = '{}'")

    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000, 10), durable=False)
        staged.connection.execute("update pipeline.dead_letters set state = 'retrying'")
        await asyncio.to_thread(retrying.retry, parking._connection, staged.source, parking._targets)
        assert staged.connection.execute(letters).fetchall() == [("retrying",)]
        await writer.append(batch(staged, 2_000, 10), durable=False)
        await writer.settle(finish=True)

    writing(staged, does)
    move(parking)
    assert ways(staged) == {"adopt": 20}
    assert events(staged)[1:21] == places((1_000, 10), (2_000, 10))
    assert staged.connection.execute(letters).fetchall() == [("retried",)]
    assert len(events(staged)) == 22


@pytest.mark.parametrize("passes", ["commit_lsn = 2000", "commit_lsn = 0, epoch = epoch + 1"])
def test_an_older_version_cannot_pass_what_waits(staged: Staged, passes: str):
    """It knows of no tables that wait, and would move what is staged behind them."""
    adopt(staged, batch(staged, 1_000, 10), batch(staged, 2_000, 10))
    staged.connection.execute("update pipeline.shuffle_progress set commit_lsn = 999")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="come next in the log") as refused:
        staged.connection.execute(f"update pipeline.shuffle_progress set {passes}")
    assert not connections.is_poison(refused.value)
    staged.shuffle()
    staged.connection.execute(f"update pipeline.shuffle_progress set {passes}")
    assert events(staged) == places((1_000, 10), (2_000, 10))


def test_nothing_is_written_at_once_while_a_segment_waits(staged: Staged):
    behind = 0

    async def does(writer: LogWriter) -> None:
        nonlocal behind
        await writer.append(batch(staged, 500), durable=False)
        behind = 10**9
        await writer.append(batch(staged, 1_000, 10), durable=False)
        await writer.settle(finish=True)
        behind = 0
        await writer.append(batch(staged, 2_000), durable=False)

    writing(staged, does, lambda: behind, small="at_once")
    staged.shuffle()
    assert events(staged) == [(500, 0), *places((1_000, 10)), (2_000, 0)]


def test_a_run_that_cannot_begin_leaves_prepared_statements_intact(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    """psycopg deallocates all of it after a rollback if it has prepared a statement by itself: one that came often."""
    monkeypatch.setattr(run, "LOCK_TIMEOUT", "set local lock_timeout = '10ms'")
    monkeypatch.setattr(run, "DRAIN_STALLED", 0.5)
    monkeypatch.setattr(run, "DRAIN_STEP", 0.001)
    monkeypatch.setattr(SegmentSizes, "pause", lambda *_: 0.0)
    staged.commit(insert("orders", id="2"))

    async def does(writer: LogWriter) -> None:
        await writer.append(batch(staged, 1_000), durable=False)  # it has asked often whether the log is drained
        await asyncio.to_thread(staged.shuffle)
        with psycopg.connect(staged.dsn) as holder:
            holder.execute("select from pipeline.shuffle_progress for update")
            await writer.append(batch(staged, 1_100), durable=False)

    writing(staged, does)
    staged.shuffle()
    assert events(staged) == [(200, 0), (1_000, 0), (1_100, 0)]
