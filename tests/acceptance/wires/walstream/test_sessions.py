"""What a client is sent, and when: at once, in order, whatever the transaction's size; and how pings are taken."""

from __future__ import annotations

import time

import pytest

from tests.fixtures.bare_http2 import Connection, Rust
from tests.fixtures.grpc_place import Place, ids, of
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group("walstream")


def test_the_rust_client_connects_before_events_and_prints_all_kinds(moving: Place) -> None:
    table = moving.table("id int primary key, note text")
    with Rust(moving.port) as client:
        client.printed("Connected")
        moving.run(
            f"insert into {table} values (1, 'a')",
            f"update {table} set note = 'b'",
            f"delete from {table}",
            f"truncate {table}",
        )
        lines = [
            f'INSERT public.{table}: {{"id":1,"note":"a"}}',
            f'UPDATE public.{table}: {{"id":1,"note":"b"}}',
            f'DELETE public.{table}: {{"id":1}}',
            f"TRUNCATE public.{table}",
        ]
        client.printed(*lines)
        assert [line for line in client.lines if table in line] == lines
        moving.settled()
        assert not client.has_exited


def test_headers_come_before_any_event(place: Place) -> None:
    with Connection(place.port) as connection:
        began = time.monotonic()
        call = connection.call()
        assert call.connected.wait(60)
        assert (call.headers[":status"], call.headers["content-type"]) == ("200", "application/grpc")
        assert not call.messages
        assert time.monotonic() - began < 10, "grpcio's own way is to wait for the first message"


def answered(connection: Connection, pings: int) -> None:
    eventually(lambda: connection.pongs == pings)


def test_pings_are_answered_on_an_idle_session(place: Place) -> None:
    """By default grpcio ends the connection at the fifth, as too many."""
    with Connection(place.port) as connection:
        call = connection.call()
        assert call.connected.wait(60)
        for number in range(1, 26):
            connection.ping()
            answered(connection, number)
            time.sleep(0.02)
        assert connection.goaway is None
        assert not call.done.is_set()
        table = place.table(rows="values (1)")
        eventually(lambda: table.encode() in b"".join(call.messages))


def test_pings_are_answered_where_nothing_is_called(place: Place) -> None:
    with Connection(place.port) as connection:
        for number in range(1, 26):
            connection.ping()
            answered(connection, number)
        assert connection.goaway is None


@pytest.mark.long
def test_two_idle_minutes_of_the_rust_client(place: Place) -> None:
    with Rust(place.port, ping_seconds=10) as client:
        client.printed("Connected")
        time.sleep(121)
        assert client.pongs >= 11
        table = place.table(rows="values (1)")
        client.printed(f'INSERT public.{table}: {{"id":1}}')
        assert client.lines[:1] + client.lines[-1:] == ["Connected", f'INSERT public.{table}: {{"id":1}}']


def test_a_client_that_closes_its_side_goes_on_receiving(place: Place) -> None:
    table = place.table()
    with Connection(place.port) as connection:
        call = connection.call()
        connection.send(call.stream, b"", end=True)
        assert call.connected.wait(60)
        place.run(f"insert into {table} values (1)")
        eventually(lambda: table.encode() in b"".join(call.messages))
        assert not call.done.is_set()


def test_many_events_come_in_order_and_their_lsns_never_fall(moving: Place) -> None:
    table = moving.table()
    moving.source.execute("select pg_switch_wal()")
    with moving.client() as client:
        with moving.source.cursor().copy(f"copy {table} from stdin") as copy:
            copy.write("".join(f"{number}\n" for number in range(500)))
        moving.run(f"insert into {table} select generate_series(501, 1000)", f"insert into {table} values (500)")
        events = of(client, table, 1_001)
        assert ids(events) == [*range(500), *range(501, 1_001), 500]
        lsns = [event.lsn for event in events]
        assert lsns == sorted(lsns)
        assert len(set(lsns)) == 3, "what is committed together shares one"
        assert 0 < lsns[-1] < 2**53
        assert lsns[-1] <= moving.source.execute("select pg_current_wal_lsn() - '0/0'").fetchone()[0]  # type: ignore[index]
        moving.settled()
