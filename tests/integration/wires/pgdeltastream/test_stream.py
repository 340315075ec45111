"""A session's stream against a real Postgres: frames, acknowledgements, and what refuses or ends it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest

from pipeline.capture.replication import progress_reporter
from pipeline.capture.replication import stream as replication_stream
from pipeline.capture.replication.confirm_rule import NEVER, ConfirmPace
from pipeline.config import settings
from pipeline.errors import DatabaseUnavailableError, SessionGoneError, SessionHeldError, UnknownSessionError
from pipeline.postgres import connections
from pipeline.wal import lsn
from pipeline.wires.pgdeltastream.sessions import frames, opening, progress, store
from pipeline.wires.pgdeltastream.sessions import stream as session_stream
from pipeline.wires.pgdeltastream.sessions.store import StoredSession
from tests.fixtures.postgres import Cluster, temporary_server, unique
from tests.fixtures.sessions import READER, Client, Sessions, until
from tests.fixtures.waiting import PATIENCE, eventually

pytestmark = pytest.mark.xdist_group("session streams")

TABLES = """
create schema other;
create type other.mood as enum ('fine');
create table t (id int primary key, name text, mood other.mood);
alter role current_user in database {} set search_path = other, public;
"""


@contextmanager
def sessions_at(source_dsn: str, database: Cluster) -> Iterator[Sessions]:
    """With a table `t` that is published."""
    with ExitStack() as stack:
        database_dsn = stack.enter_context(database.database("pipeline", database.template))
        with psycopg.connect(source_dsn, autocommit=True) as connection:
            connection.execute(TABLES.format(connection.info.dbname).encode())
        config = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=unique("slot"), sessions_max=1000)
        made = Sessions(config)
        stack.callback(made.close)
        made.begin()
        yield made


@pytest.fixture(scope="module")
def sessions(cluster: Cluster) -> Iterator[Sessions]:
    with cluster.database("source") as source_dsn, sessions_at(source_dsn, cluster) as made:
        yield made


@pytest.fixture(autouse=True)
def long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is not taken for a source that does not answer."""
    for name in ("ANSWER_SECONDS", "CONNECT_SECONDS", "LEAVE_SECONDS"):
        monkeypatch.setattr(opening, name, int(PATIENCE))


@pytest.fixture
def session(sessions: Sessions) -> Iterator[StoredSession]:
    """Of the test's own, over an empty table."""
    sessions.run("truncate t")
    made = sessions.make()
    yield made
    sessions.drop(made)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 2 * PATIENCE))


def insert(sessions: Sessions, first: int, last: int | None = None) -> None:
    sessions.run(f"insert into t select n, 'row ' || n, 'fine' from generate_series({first}, {last or first}) n")


def why(sessions: Sessions, session: StoredSession | None) -> str:
    """What refuses the stream."""

    async def follow() -> None:
        async with sessions.stream(session):
            pass

    with pytest.raises((SessionGoneError, SessionHeldError, UnknownSessionError, DatabaseUnavailableError)) as refused:
        run(follow())
    return f"{refused.type.__name__}: {refused.value}"


def test_an_acknowledged_frame_is_not_sent_again(sessions: Sessions, session: StoredSession) -> None:
    async def follow() -> None:
        async with sessions.stream(session) as client:
            insert(sessions, 1)
            sessions.run("update t set name = 'b'")
            first, second = await client.next(), await client.next()
            assert [frame["change"][0]["kind"] for frame in (first, second)] == ["insert", "update"]
            client.acknowledge(first)
            await until(lambda: sessions.confirmed(session) == first["nextlsn"])
            assert lsn.show(sessions.fresh(session).position or 0) == first["nextlsn"]
        async with sessions.stream(sessions.fresh(session)) as client:
            assert await client.next() == second
            client.acknowledge(second)
            await until(lambda: sessions.confirmed(session) == second["nextlsn"])

    run(follow())


def test_garbage_and_what_was_not_sent_move_nothing(sessions: Sessions, session: StoredSession) -> None:
    async def follow() -> None:
        async with sessions.stream(session) as client:
            insert(sessions, 1)
            insert(sessions, 2)
            first, second = await client.next(), await client.next()
            client.acknowledge(first)
            await until(lambda: sessions.confirmed(session) == first["nextlsn"])
            for said in ("", "x", "FFFFFFFF/0", "0/0", first["nextlsn"], "0/" + "1" * 20):
                client.stream.acknowledge(said)
            insert(sessions, 3)
            assert (await client.next())["change"][0]["columnvalues"][0] == 3
            assert sessions.confirmed(session) == first["nextlsn"]
            client.acknowledge(second)
            await until(lambda: sessions.confirmed(session) == second["nextlsn"])

    run(follow())


def test_a_position_is_stored_before_it_is_confirmed(sessions: Sessions, session: StoredSession) -> None:
    async def follow() -> None:
        async with sessions.stream(session) as client:
            insert(sessions, 1)
            frame = await client.next()
            before = sessions.confirmed(session)
            with sessions.pipeline.transaction():
                sessions.pipeline.execute("select from pipeline.sessions where id = %s for update", [session.id])
                client.acknowledge(frame)
                await asyncio.sleep(0.2)
                assert sessions.confirmed(session) == before
            await until(lambda: sessions.confirmed(session) == frame["nextlsn"])

    run(follow())


def test_parts_of_a_transaction_confirm_nothing_of_it(
    sessions: Sessions, session: StoredSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "FRAME_BYTES", 2_000)

    async def follow() -> None:
        start = lsn.show(session.position or 0)
        async with sessions.stream(session) as client:
            insert(sessions, 1, 100)
            found = [await client.next()]
            while found[-1]["nextlsn"] == start:
                client.acknowledge(found[-1])
                found.append(await client.next())
            assert len(found) > 5
            assert sessions.confirmed(session) == start
        async with sessions.stream(session) as client:
            again = [await client.next() for _ in found]
            assert again == found
            client.acknowledge(again[-1])
            await until(lambda: sessions.confirmed(session) == found[-1]["nextlsn"])

    run(follow())


def test_types_are_named_in_the_databases_own_search_path(sessions: Sessions, session: StoredSession) -> None:
    async def follow() -> None:
        async with sessions.stream(session) as client:
            insert(sessions, 1)
            (change,) = (await client.next())["change"]
            assert change["columntypes"] == ["integer", "text", "mood"]
            assert change["columnvalues"] == [1, "row 1", "fine"]

    run(follow())


def test_a_type_that_is_gone_has_its_name(sessions: Sessions, session: StoredSession) -> None:
    sessions.run(
        "create type public.short_lived as enum ('a')",
        "create table gone (id int primary key, value public.short_lived)",
    )
    sessions.publish()
    sessions.run("insert into gone values (1, 'a')", "drop table gone", "drop type public.short_lived")

    async def follow() -> None:
        async with sessions.stream(session) as client:
            (change,) = (await client.next())["change"]
            assert change["columntypes"] == ["integer", "short_lived"]

    run(follow())


def test_idle_wal_is_passed_over_once_all_is_acknowledged(
    sessions: Sessions, session: StoredSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PACE", ConfirmPace(reply=0.0, idle=0.3, idle_bytes=NEVER))
    monkeypatch.setattr(session_stream, "_LOOK_SECONDS", 0.05)

    async def follow() -> None:
        async with sessions.stream(session) as client:
            insert(sessions, 1)
            frame = await client.next()
            sessions.run("create table nobody_reads ()", "drop table nobody_reads")
            await asyncio.sleep(0.6)
            assert sessions.confirmed(session) == lsn.show(session.position or 0)
            client.acknowledge(frame)
            await until(lambda: lsn.parse(sessions.confirmed(session)) > lsn.parse(frame["nextlsn"]))
            assert (sessions.fresh(session).position or 0) > lsn.parse(frame["nextlsn"])

    run(follow())


def test_a_second_reader_learns_who_has_it(
    sessions: Sessions, session: StoredSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "LEAVE_SECONDS", 0.3)

    async def follow() -> None:
        async with sessions.stream(session) as client:
            assert sessions.fresh(session).reader == READER
            with pytest.raises(SessionHeldError, match=f"is read by {READER} since 20"):
                async with sessions.stream(session, "another"):
                    pass
            insert(sessions, 1)
            await client.next()
        assert sessions.fresh(session).reader is None

    run(follow())


def test_who_is_just_leaving_is_waited_for(sessions: Sessions, session: StoredSession) -> None:
    async def follow() -> None:
        async with sessions.stream(session):
            entered = sessions.stream(session, "the next")
            opening_next = asyncio.create_task(entered.__aenter__())
            await asyncio.sleep(0.2)
        await opening_next
        assert sessions.fresh(session).reader == "the next"
        await entered.__aexit__(None, None, None)

    run(follow())


def drop_slot(sessions: Sessions, session: StoredSession) -> None:
    sessions.source.execute("select pg_drop_replication_slot(%s)", [session.slot])


def advance_slot(sessions: Sessions, session: StoredSession) -> None:
    insert(sessions, 1)
    sessions.source.execute("select pg_replication_slot_advance(%s, pg_current_wal_flush_lsn())", [session.slot])


def end(sessions: Sessions, session: StoredSession) -> None:
    store.end(sessions.pipeline, session.id, "it was idle for 1h")


def change(column: str, value: object) -> Callable[[Sessions, StoredSession], object]:
    query = f"update pipeline.sessions set {column} = %s where id = %s"
    return lambda sessions, session: sessions.pipeline.execute(query.encode(), [value, session.id])


def replace_slot(sessions: Sessions, session: StoredSession) -> None:
    drop_slot(sessions, session)
    sessions.source.execute("select pg_create_logical_replication_slot(%s, 'pgoutput', false, true)", [session.slot])


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (drop_slot, "SessionGoneError: session {}: its slot was dropped at the source; begin another"),
        (replace_slot, "SessionGoneError: session {}: its slot was replaced by another one"),
        (advance_slot, "SessionGoneError: session {}: another program has moved its slot beyond"),
        (end, "SessionGoneError: session {}: it was idle for 1h; begin another"),
        (change("system_identifier", "1"), "SessionGoneError: session {}: the source is another cluster"),
        (change("epoch", 7), "SessionGoneError: session {}: the source was adopted"),
        (
            change("position", 1 << 60),
            "SessionGoneError: session {}: the source was restored to a state that is older than",
        ),
        (change("state", "making"), "UnknownSessionError: no such session was made here"),
    ],
    ids=["dropped", "replaced", "moved", "ended", "cluster", "epoch", "restored", "making"],
)
def test_what_cannot_be_streamed_is_said(
    sessions: Sessions, session: StoredSession, cause: Callable[[Sessions, StoredSession], object], said: str
) -> None:
    cause(sessions, session)
    assert why(sessions, session).startswith(said.format(session.slot))
    assert why(sessions, None) == "UnknownSessionError: no such session was made here"


def test_commits_at_the_source_never_wait_for_a_client(sessions: Sessions, session: StoredSession) -> None:
    set_names(sessions, f'"{store.walsender_name(session.slot)}"')
    try:
        assert why(sessions, session).startswith("StatementRefusedError: synchronous_standby_names")
    finally:
        set_names(sessions, "")


def set_names(sessions: Sessions, names: str) -> None:
    with psycopg.connect(sessions.config.source, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        connection.execute(f"alter system set synchronous_standby_names = '{names}'".encode())
        connection.execute("select pg_reload_conf()")
    query = "select current_setting('synchronous_standby_names')"
    eventually(lambda: sessions.source.execute(query).fetchone() == (names,))


def test_a_walsender_that_is_ended_is_no_end_of_the_session(sessions: Sessions, session: StoredSession) -> None:
    async def follow() -> None:
        async with sessions.stream(session) as client:
            insert(sessions, 1)
            frame = await client.next()
            sessions.end_walsender(session)
            assert isinstance(await client.ends(), DatabaseUnavailableError)
            assert isinstance(client.stream.ended.result(), DatabaseUnavailableError)
        async with sessions.stream(sessions.fresh(session)) as client:
            assert await client.next() == frame

    run(follow())


def test_a_session_that_is_ended_says_why(sessions: Sessions, session: StoredSession) -> None:
    async def follow() -> None:
        async with sessions.stream(session) as client:
            end(sessions, session)
            sessions.end_walsender(session)
            error = await client.ends()
            assert isinstance(error, SessionGoneError) and "it was idle for 1h" in str(error)

    run(follow())


def test_an_ended_session_takes_no_acknowledgement(sessions: Sessions, session: StoredSession) -> None:
    async def follow() -> None:
        async with sessions.stream(session) as client:
            insert(sessions, 1)
            frame = await client.next()
            end(sessions, session)
            client.acknowledge(frame)
            assert isinstance(await client.ends(), SessionGoneError)
            assert sessions.confirmed(session) != frame["nextlsn"]

    run(follow())


def test_a_client_that_does_not_read_keeps_its_walsender(
    sessions: Sessions, session: StoredSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (replication_stream, progress_reporter):
        monkeypatch.setattr(module, "SENDER_TIMEOUT", 2)

    async def follow() -> None:
        async with sessions.stream(session, eager=False) as client:
            walsender = sessions.walsender(session)
            await asyncio.to_thread(insert, sessions, 1, 40_000)  # the loop goes on: the walsender hears of us
            for n in range(40_001, 40_020):
                await asyncio.to_thread(insert, sessions, n)
            await asyncio.sleep(2.5)
            assert sessions.walsender(session) == walsender
            assert len((await client.next())["change"]) == 40_000

    run(follow())


def test_a_source_that_never_answers_is_given_up(
    sessions: Sessions, session: StoredSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "CONNECT_SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = sessions.config
        dsn = f"host=127.0.0.1 port={silent.getsockname()[1]} user=postgres dbname=postgres sslmode=disable"
        away = Sessions.__new__(Sessions)
        away.config = settings.load(source_dsn=dsn, database_dsn=config.database)
        began = time.monotonic()
        assert why(away, session).startswith("DatabaseUnavailableError: ")
        assert time.monotonic() - began < connections.CONNECT_TIMEOUT, "which it takes where nothing else is said"


@pytest.mark.parametrize("reads", [True, False], ids=["reads", "does not read"])
def test_a_shutdown_of_the_source_waits_for_no_client(cluster: Cluster, reads: bool) -> None:
    with temporary_server(18) as source, sessions_at(source.dsn("template1"), cluster) as sessions:
        session = sessions.make()

        async def follow() -> None:
            async with sessions.stream(session, eager=reads) as client:
                insert(sessions, 1, 1 if reads else 200_000)
                if reads:
                    await client.next()
                await shut_down(source, client)

        run(follow())


async def shut_down(source: Cluster, client: Client) -> None:
    assert source.server is not None
    began = time.monotonic()
    await asyncio.to_thread(source.server.stop, "fast")
    assert time.monotonic() - began < replication_stream.SENDER_TIMEOUT / 2
    assert isinstance(await client.stream.ended, DatabaseUnavailableError)
