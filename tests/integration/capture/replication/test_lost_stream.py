"""A stream that is lost leaves nothing in the event loop, which would not watch the next socket of that number."""

from __future__ import annotations

import asyncio
import gc

import psycopg
import pytest

from pipeline.capture.replication.stream import ReplicationStream
from pipeline.errors import DatabaseUnavailableError
from tests.fixtures.waiting import PATIENCE


def test_a_new_stream_with_the_number_of_a_lost_socket_is_read(source_dsn: str) -> None:
    with psycopg.connect(source_dsn, autocommit=True) as source:
        source.execute("create table t (id int primary key); create publication p for table t")
        for name in ("lost_stream_1", "lost_stream_2"):
            source.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
        asyncio.run(asyncio.wait_for(_follow(source_dsn, source), 2 * PATIENCE))


async def _follow(dsn: str, source: psycopg.Connection) -> None:
    gc.collect()  # a socket of before that goes only now would leave a lower number than that of the lost one
    lost = ReplicationStream(dsn, "lost")
    lost.start("lost_stream_1", 0, ["p"])
    number = lost._connection.socket
    lost.hang_up()
    with pytest.raises(DatabaseUnavailableError):
        while True:
            await lost.read()
    lost.close()
    following = ReplicationStream(dsn, "following")
    try:
        following.start("lost_stream_2", 0, ["p"])
        assert following._connection.socket == number
        reading = asyncio.create_task(_until_insert(following))
        await asyncio.sleep(0.2)  # it waits by now, and has read what came with the start
        source.execute("insert into t values (1)")
        await asyncio.wait_for(reading, PATIENCE)
    finally:
        following.close()


async def _until_insert(stream: ReplicationStream) -> None:
    while not any(message[25:26] == b"I" for message in await stream.read()):
        continue
