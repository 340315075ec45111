"""What the source has sent and nobody reads yet, as while staging is waited for, lets the event loop rest."""

from __future__ import annotations

import asyncio
import select

import psycopg
import pytest

from pipeline.capture.replication.stream import ReplicationStream

AT_MOST = 20
"""Turns of the loop in SECONDS in which it has nothing to do; it would be thousands."""
SECONDS = 0.3


def test_the_loop_rests(source_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(source_dsn, autocommit=True) as source:
        source.execute("create table t (id int primary key); create publication p for table t")
        source.execute("select pg_create_logical_replication_slot('unread_stream', 'pgoutput')")
        assert asyncio.run(asyncio.wait_for(_turns(source_dsn, source, monkeypatch), 20)) <= AT_MOST


async def _turns(dsn: str, source: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> int:
    stream = ReplicationStream(dsn, "unread")
    try:
        stream.start("unread_stream", 0, ["p"])
        waiting = asyncio.create_task(_until_insert(stream))
        source.execute("insert into t values (1)")
        await waiting
        source.execute("insert into t values (2)")
        await asyncio.to_thread(select.select, [stream._connection.socket], [], [])
        turns = _counted(monkeypatch)
        await asyncio.sleep(SECONDS)
        counted = len(turns)
        await _until_insert(stream)
        return counted
    finally:
        stream.close()


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows with each turn of the running loop."""
    turns: list[None] = []
    loop = asyncio.get_running_loop()
    turn = loop._run_once  # type: ignore[attr-defined]

    def counting() -> None:
        turns.append(None)
        turn()

    monkeypatch.setattr(loop, "_run_once", counting)
    return turns


async def _until_insert(stream: ReplicationStream) -> None:
    while not any(message[25:26] == b"I" for message in await stream.read()):
        continue
