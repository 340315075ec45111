"""The event loop rests while data of the source is unread, for instance while the worker waits for staging."""

from __future__ import annotations

import asyncio
import select
import selectors

import psycopg

from pipeline.capture.replication.stream import ReplicationStream

AT_MOST = 20
"""Turns of the loop in SECONDS in which it has nothing to do; it would be thousands."""
SECONDS = 0.3


class Turns(selectors.DefaultSelector):
    """Counts the turns of its loop."""

    count = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.count += 1
        return super().select(timeout)


def test_the_loop_rests(source_dsn: str) -> None:
    with psycopg.connect(source_dsn, autocommit=True) as source:
        source.execute("create table t (id int primary key); create publication p for table t")
        source.execute("select pg_create_logical_replication_slot('unread_stream', 'pgoutput')")
        turns = Turns()
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(turns)) as runner:
            assert runner.run(asyncio.wait_for(_turns_at_rest(source_dsn, source, turns), 20)) <= AT_MOST


async def _turns_at_rest(dsn: str, source: psycopg.Connection, turns: Turns) -> int:
    stream = ReplicationStream(dsn, "unread")
    try:
        stream.start("unread_stream", 0, ["p"])
        waiting = asyncio.create_task(_until_insert(stream))
        source.execute("insert into t values (1)")
        await waiting
        source.execute("insert into t values (2)")
        await asyncio.to_thread(select.select, [stream._connection.socket], [], [])
        before = turns.count
        await asyncio.sleep(SECONDS)
        counted = turns.count - before
        await _until_insert(stream)
        return counted
    finally:
        stream.close()


async def _until_insert(stream: ReplicationStream) -> None:
    while not any(message[25:26] == b"I" for message in await stream.read()):
        continue
