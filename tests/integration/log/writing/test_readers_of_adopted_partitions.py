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
def log(made: Staged) -> Staged:
    """One transaction is in the log."""
    made.reset()
    made.moved(insert("orders", id="first"))
    return made


def grow(log: Staged, lsn: int) -> None:
    """Two segments of it, one of a transaction that is longer than a table; what comes between two runs is moved."""
    shuffler = log.shuffler()
    behind = 10**9

    async def does(writer: LogWriter) -> None:
        nonlocal behind
        await writer.append(batch(log, lsn, 10), durable=False)
        await writer.append(batch(log, lsn + 1_000, 250), durable=False)
        await writer.settle(finish=True)
        behind = 0
        await writer.append(batch(log, lsn + 2_000, 3), durable=True)
        await asyncio.to_thread(move, shuffler)
        behind = 10**9
        await writer.append(batch(log, lsn + 3_000, 12), durable=False)
        await writer.settle(finish=True)

    writing(log, does, lambda: behind)
    move(shuffler)


def keys(log: Staged) -> list[str]:
    return [key for (key,) in log.connection.execute(KEYS)]


def handled(log: Staged, name: str) -> list[str]:
    with Queue(log.dsn, name, wait=0) as queue:
        found = []
        for item in queue:
            with item:
                found.append(item.record_pk)
    return found


def test_a_records_consumer_handles_each_once(log: Staged):
    create(log.connection, "before")
    grow(log, 1_000)
    assert log.connection.execute(PARTITIONS).rowcount == 3
    assert len(keys(log)) == 276
    assert handled(log, "before") == keys(log)
    grow(log, 10_000)
    create(log.connection, "after")
    log.shuffle()
    assert log.connection.execute(PARTITIONS).rowcount > 3
    assert handled(log, "before") == keys(log)[276:]
    assert handled(log, "after") == keys(log)
    assert log.connection.execute("select from consumer_records").rowcount == 0


def test_a_cursor_goes_on_in_the_midst_of_an_adopted_partition(log: Staged):
    grow(log, 1_000)
    wanted = [tuple(seqs) for (seqs,) in log.connection.execute(SEQS)]
    assert [len(seqs) for seqs in wanted] == [1, 10, 250, 3, 12]
    consumer(log.connection, "reader")
    with Rpc(log.dsn) as rpc:
        call = rpc.read(consumer="reader", follow=True)
        session = session_of(call)
        found = [tuple(event.seq for event in each.changes) for each in islice(call, 2)]
        assert found == wanted[:2]
        inside = rpc.ack("reader", wanted[1][4], session)
        assert inside.seq == wanted[0][-1]
        rpc.ack("reader", wanted[1][-1], session)
        call.cancel()
        released(log.connection, "reader")
        again = rpc.read(consumer="reader", follow=True)
        found = [tuple(event.seq for event in each.changes) for each in islice(again, 3)]
        assert found == wanted[2:]
        grow(log, 10_000)
        wanted = [tuple(seqs) for (seqs,) in log.connection.execute(SEQS)]
        found = [tuple(event.seq for event in each.changes) for each in islice(again, 4)]
        assert found == wanted[5:]
        rpc.ack("reader", wanted[-1][-1], session_of(again))
        assert position(log.connection, "reader") == wanted[-1][-1]
        again.cancel()
