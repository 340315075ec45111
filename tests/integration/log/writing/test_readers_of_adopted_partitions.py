"""Consumers over a log of which some was moved and some became partitions: every event, once, in order."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest

from pipeline.client import Queue
from pipeline.log.writing.log_writer import LogWriter
from tests.fixtures.adopting import batch, writing
from tests.fixtures.rpc import Rpc, consumer, position, released, session_of
from tests.fixtures.shuffling import move
from tests.fixtures.staged import Staged, create, insert

KEYS = "select record_pk from sequin_events order by seq"
SEQS = "select array_agg(seq order by seq) from sequin_events group by commit_lsn order by min(seq)"
PARTITIONS = r"select from pg_class where relname ~ '^sequin_events_\d{12}_\d+$'"


@pytest.fixture
def staged(made: Staged) -> Staged:
    """One transaction is in the log."""
    made.reset()
    made.moved(insert("orders", id="first"))
    return made


def grow(staged: Staged, lsn: int) -> None:
    """Two segments of it, one of a transaction that is longer than a table; what comes between two runs is moved."""
    shuffler = staged.shuffler()
    behind = 10**9

    async def does(writer: LogWriter) -> None:
        nonlocal behind
        await writer.append(batch(staged, lsn, 10), durable=False)
        await writer.append(batch(staged, lsn + 1_000, 250), durable=False)
        await writer.settle(finish=True)
        behind = 0
        await writer.append(batch(staged, lsn + 2_000, 3), durable=True)
        await asyncio.to_thread(move, shuffler)
        behind = 10**9
        await writer.append(batch(staged, lsn + 3_000, 12), durable=False)
        await writer.settle(finish=True)

    writing(staged, does, lambda: behind)
    move(shuffler)


def keys(staged: Staged) -> list[str]:
    return [key for (key,) in staged.connection.execute(KEYS)]


def handled(staged: Staged, name: str) -> list[str]:
    with Queue(staged.dsn, name, wait=0) as queue:
        found = []
        for item in queue:
            with item:
                found.append(item.record_pk)
    return found


def test_a_records_consumer_handles_each_once(staged: Staged):
    create(staged.connection, "before")
    grow(staged, 1_000)
    assert staged.connection.execute(PARTITIONS).rowcount == 3
    assert len(keys(staged)) == 276
    assert handled(staged, "before") == keys(staged)
    grow(staged, 10_000)
    create(staged.connection, "after")
    staged.shuffle()
    assert staged.connection.execute(PARTITIONS).rowcount > 3
    assert handled(staged, "before") == keys(staged)[276:]
    assert handled(staged, "after") == keys(staged)
    assert staged.connection.execute("select from consumer_records").rowcount == 0


def test_a_cursor_goes_on_in_the_midst_of_an_adopted_partition(staged: Staged):
    grow(staged, 1_000)
    wanted = [tuple(seqs) for (seqs,) in staged.connection.execute(SEQS)]
    assert [len(seqs) for seqs in wanted] == [1, 10, 250, 3, 12]
    consumer(staged.connection, "reader")
    with Rpc(staged.dsn) as rpc:
        call = rpc.read(consumer="reader", follow=True)
        session = session_of(call)
        found = [tuple(event.seq for event in each.changes) for each in islice(call, 2)]
        assert found == wanted[:2]
        inside = rpc.ack("reader", wanted[1][4], session)
        assert inside.seq == wanted[0][-1]
        rpc.ack("reader", wanted[1][-1], session)
        call.cancel()
        released(staged.connection, "reader")
        again = rpc.read(consumer="reader", follow=True)
        found = [tuple(event.seq for event in each.changes) for each in islice(again, 3)]
        assert found == wanted[2:]
        grow(staged, 10_000)
        wanted = [tuple(seqs) for (seqs,) in staged.connection.execute(SEQS)]
        found = [tuple(event.seq for event in each.changes) for each in islice(again, 4)]
        assert found == wanted[5:]
        rpc.ack("reader", wanted[-1][-1], session_of(again))
        assert position(staged.connection, "reader") == wanted[-1][-1]
        again.cancel()
