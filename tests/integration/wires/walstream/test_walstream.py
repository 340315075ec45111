"""walstream's wire: what sessions get, and that the position waits for sessions without an acknowledgement."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import psycopg
import pytest

from pipeline.consumers.cursor import claims
from pipeline.consumers.cursor.claims import CursorClaim
from tests.fixtures.postgres import Cluster
from tests.fixtures.routed_log import AUDIT, route
from tests.fixtures.rpc import Rpc, position, refused
from tests.fixtures.small_log import add_inserts, small_log
from tests.fixtures.streaming import announce
from tests.fixtures.waiting import eventually
from tests.fixtures.walstream import Client, Event
from tests.fixtures.walstream_log import head, stored, write


@pytest.fixture(scope="module")
def dsn(cluster: Cluster) -> Iterator[str]:
    with cluster.database("events", cluster.template) as made:
        yield made


@pytest.fixture(scope="module")
def module_log(dsn: str) -> Iterator[psycopg.Connection]:
    with small_log(dsn, 20) as connection:
        yield connection


@pytest.fixture
def log(module_log: psycopg.Connection) -> psycopg.Connection:
    """With the position at the head, and no session to wait for."""
    module_log.execute("delete from pipeline.walstream_sessions")
    module_log.execute("delete from pipeline.consumers where name = 'walstream'")
    module_log.execute("select pipeline.create_consumer('walstream', 'cursor')")
    return module_log


@pytest.fixture
def rpc(log: psycopg.Connection, dsn: str) -> Iterator[Rpc]:
    with Rpc(dsn, wires="walstream") as running:
        yield running


def held(log: psycopg.Connection) -> int:
    return log.execute("select from pipeline.consumers where name = 'walstream' and reader is not null").rowcount


def test_the_four_kinds_in_order_from_the_head_on(log: psycopg.Connection, rpc: Rpc) -> None:
    with Client(rpc.address).connected() as client:
        first = write(log, ("insert", {"b": 1, "aa": "x"}), ("update", {"b": 2}))
        second = write(log, ("delete", {"b": 2}), ("truncate", {}))
        found = client.take(4)
        assert [(each.kind, each.lsn, each.table) for each in found] == [
            ("insert", first, "public.orders"),
            ("update", first, "public.orders"),
            ("delete", second, "public.orders"),
            ("truncate", second, "public.orders"),
        ]
        assert [each.text for each in found] == ['{"aa":"x","b":1}', '{"b":2}', '{"b":2}', ""]


def test_the_position_moves_to_the_end_of_whole_transactions(log: psycopg.Connection, rpc: Rpc) -> None:
    before = head(log)
    with Client(rpc.address).connected() as client:
        one = write(log, *[("insert", {"id": number}) for number in range(5)])
        write(log, ("insert", {"id": 9}))
        client.take(6)
        for _ in range(4):
            client.ack(one)
        client.ack(10**15)
        time.sleep(0.5)
        assert position(log, "walstream") == before
        client.ack(one)
        stored(log, before + 5)
        client.ack(one)
        client.ack(one + 1)
    eventually(lambda: log.execute("select from pipeline.walstream_sessions where ended_at is not null").rowcount == 1)
    with Client(rpc.address).connected() as client:
        assert client.next().values == {"id": 9}, "what was not acknowledged, and nothing else"


def test_what_all_have_acknowledged_does_not_come_again(log: psycopg.Connection, dsn: str, rpc: Rpc) -> None:
    with Client(rpc.address).connected() as client:
        add_inserts(log, 30)
        announce(log)
        client.take(30, ack=True)
        stored(log, head(log))
    with Client(rpc.address).connected() as client:
        assert client.nothing()


def test_the_position_waits_for_the_slowest(log: psycopg.Connection, rpc: Rpc) -> None:
    with Client(rpc.address).connected() as quick, Client(rpc.address).connected() as slow:
        before = head(log)
        add_inserts(log, 40)
        announce(log)
        events = quick.take(40, ack=True)
        assert [each.text for each in slow.take(40)] == [each.text for each in events]
        time.sleep(0.4)
        assert position(log, "walstream") == before
        for each in events[:25]:
            slow.ack(each.lsn)
        ends = [at for at in range(1, 40) if events[at].lsn != events[at - 1].lsn and at <= 25]
        stored(log, before + ends[-1])
        slow.ack(events[-1].lsn)  # of the last transaction the first one: all before it
        ends = [at for at in range(1, 40) if events[at].lsn != events[at - 1].lsn]
        stored(log, before + ends[-1])


def test_a_client_that_closes_its_side_goes_on_receiving(log: psycopg.Connection, rpc: Rpc) -> None:
    with Client(rpc.address).connected() as client:
        client.half_close()
        time.sleep(0.2)
        write(log, ("insert", {"id": 1}))
        assert client.next().values == {"id": 1}


def test_events_without_values_and_messages_are_left_out(log: psycopg.Connection, rpc: Rpc) -> None:
    with Client(rpc.address).connected() as client:
        write(log, ("insert", {}), metadata='{"parked": {}}')
        write(log, ("message", {"content": "x"}))
        write(log, ("read", {"id": 1}))
        last = write(log, ("insert", {"id": 2}))
        found = client.next()
        assert (found.lsn, found.values) == (last, {"id": 2})
        client.ack(found.lsn)
        stored(log, head(log))


def test_a_row_is_not_set_back_by_what_is_written_late(log: psycopg.Connection, rpc: Rpc) -> None:
    with Client(rpc.address).connected() as client:
        write(log, ("update", {"id": 1}), metadata='{"outdated": true}')
        write(log, ("delete", {"id": 1}), metadata='{"parked": {}}')
        assert client.next().kind == "delete"


def test_what_is_no_message_is_said(rpc: Rpc) -> None:
    call: Any = rpc.channel.stream_stream("/plugin.PluginService/Session")
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "is not of the type that this call takes"):
        list(call(iter([b"\xff\xff garbage"]), timeout=20))


def test_its_filter_is_that_of_the_consumer(log: psycopg.Connection, rpc: Rpc) -> None:
    log.execute("update pipeline.consumers set actions = '{read,delete}' where name = 'walstream'")
    with Client(rpc.address).connected() as client:
        write(log, ("read", {"id": 1}), ("insert", {"id": 2}), ("delete", {"id": 3}))
        assert [(each.kind, each.values["id"]) for each in client.take(2)] == [("insert", 1), ("delete", 3)]


def test_a_row_that_is_too_large_goes_without_its_largest_value(
    log: psycopg.Connection, rpc: Rpc, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(rpc.address).connected() as client, caplog.at_level(logging.WARNING):
        write(log, ("insert", {"id": 1, "large": "x" * 5_000_000}))
        write(log, ("insert", {"id": 2}))
        assert [each.values for each in client.take(2, ack=True)] == [{"id": 1}, {"id": 2}]
        stored(log, head(log))
    assert f"seq {head(log) - 1} of public.orders went out without large" in caplog.text
    count = "select count from pipeline.wire_counters where name = 'shortened'"
    eventually(lambda: (log.execute(count).fetchone() or [0])[0] >= 1)


def test_what_is_done_to_the_consumer_reaches_sessions(
    log: psycopg.Connection, rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "REVIEW_SECONDS", 0.1)
    paused, set_paused = threading.Event(), CursorClaim.set_paused

    def seen(claim: CursorClaim, now: bool) -> None:
        set_paused(claim, now)
        if now:
            paused.set()

    monkeypatch.setattr(CursorClaim, "set_paused", seen)
    with Client(rpc.address).connected() as client:
        log.execute("select pipeline.pause_consumer('walstream')")
        assert paused.wait(60)
        write(log, ("insert", {"id": 1}))
        assert client.nothing(0.3)
        log.execute("select pipeline.resume_consumer('walstream')")
        assert client.next().values == {"id": 1}
        log.execute("select pipeline.reset_consumer('walstream', 'beginning')")
        status, words = client.ended()
        assert (status, "consumer walstream was reset" in words) == (grpc.StatusCode.UNAVAILABLE, True)
    with Client(rpc.address).connected() as client:
        assert client.next().values["id"] == 0, "from the beginning"
        log.execute("select pipeline.drop_consumer('walstream')")
        status, words = client.ended()
        assert (status, "was dropped" in words) == (grpc.StatusCode.NOT_FOUND, True), (status, words)
    with Client(rpc.address).connected() as client:
        eventually(lambda: position(log, "walstream") == head(log), errors=(TypeError,))
        assert client.nothing()


def test_a_consumer_of_another_events_table_is_refused(log: psycopg.Connection, rpc: Rpc) -> None:
    route(log, "orders", 16384)
    log.execute("select pipeline.drop_consumer('walstream')")
    table = AUDIT.identifier.as_string()
    log.execute("select pipeline.create_consumer('walstream', events_table => %s::regclass, kind => 'cursor')", [table])
    with Client(rpc.address).connected() as client:
        assert client.ended() == (
            grpc.StatusCode.FAILED_PRECONDITION,
            f"consumer walstream reads {AUDIT}, and these clients the default events table; "
            "delete it: `pipeline consumers delete walstream`",
        )


def test_another_process_says_who_serves_it(log: psycopg.Connection, dsn: str, rpc: Rpc) -> None:
    with Client(rpc.address).connected(), Rpc(dsn, wires="walstream") as other, Client(other.address) as refused_one:
        status, words = refused_one.ended()
        assert status == grpc.StatusCode.UNAVAILABLE
        assert "walstream's clients through server test:1" in words
    eventually(lambda: held(log) == 0)
    with Rpc(dsn, wires="walstream") as other, Client(other.address).connected() as client:
        write(log, ("insert", {"id": 1}))
        assert client.next().values == {"id": 1}


def test_at_its_end_sessions_are_told_and_what_was_acknowledged_is_stored(log: psycopg.Connection, dsn: str) -> None:
    with Rpc(dsn, wires="walstream") as other, Client(other.address).connected() as client:
        add_inserts(log, 10)
        announce(log)
        found: list[Event] = client.take(10)
        for each in found:
            client.ack(each.lsn)
        eventually(lambda: position(log, "walstream") == head(log))
        began = time.monotonic()
        other.stop()
        assert time.monotonic() - began < 20, "it waits for no client"
        assert client.ended() == (grpc.StatusCode.UNAVAILABLE, "the server is stopping; call again")


def test_a_wire_that_is_not_served_says_which_setting(log: psycopg.Connection, dsn: str) -> None:
    with Rpc(dsn) as other, Client(other.address) as client:
        status, words = client.ended()
        assert status == grpc.StatusCode.UNIMPLEMENTED
        assert "PIPELINE_WIRES" in words


def test_an_open_wire_needs_no_token(log: psycopg.Connection, dsn: str) -> None:
    with Rpc(dsn, wires="walstream", api_token="geheim") as other:
        with Client(other.address) as client:
            assert client.ended()[0] == grpc.StatusCode.UNAUTHENTICATED
        with Client(other.address, "geheim") as client:
            client.connected()
    eventually(lambda: held(log) == 0)
    with Rpc(dsn, wires="walstream", open_wires="walstream", api_token="geheim") as other:
        with Client(other.address).connected() as client:
            write(log, ("insert", {"id": 1}))
            assert client.next().values == {"id": 1}
        with refused(grpc.StatusCode.UNAUTHENTICATED, "PIPELINE_API_TOKEN"):
            list(other.read())
