"""A session's stream against a real Postgres: frames, acknowledgements, and what refuses or ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from pipeline.config import settings
from pipeline.wal import lsn
from tests.fixtures.sessions import Sessions, until


@pytest.fixture
def sessions(source_dsn: str, database_dsn: str) -> Iterator[Sessions]:
    """With a table `t` that is published."""
    with psycopg.connect(source_dsn, autocommit=True) as source:
        source.execute("create table t (id int primary key, name text)")
    made = Sessions(settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=f"s_{id(source_dsn)}"))
    made.begin()
    yield made
    made.close()


def test_frames_and_acknowledgements(sessions: Sessions) -> None:
    session = sessions.make()

    async def follow() -> None:
        async with sessions.stream(session) as client:
            sessions.run("insert into t values (1, 'a')", "update t set name = 'b'")
            first, second = await client.next(), await client.next()
            assert [frame["change"][0]["kind"] for frame in (first, second)] == ["insert", "update"]
            client.acknowledge(first)
            await until(lambda: sessions.confirmed(session) == first["nextlsn"])
            assert lsn.show(sessions.fresh(session).position or 0) == first["nextlsn"]
        async with sessions.stream(sessions.fresh(session)) as client:
            assert await client.next() == second
            client.acknowledge(second)
        assert sessions.confirmed(session) == second["nextlsn"]

    asyncio.run(follow())
