"""What no client has acknowledged comes again, whatever dies; what all have does not."""

from __future__ import annotations

import os
import re
import signal
import time

import grpc
import pytest

from tests.fixtures.bare_http2 import Connection, Rust
from tests.fixtures.grpc_place import Place, ids, listening, of
from tests.fixtures.postgres import free_port
from tests.fixtures.waiting import eventually
from tests.fixtures.walstream import Client

pytestmark = pytest.mark.xdist_group("walstream")


def test_what_is_written_while_nobody_is_there_comes_in_order(moving: Place) -> None:
    table = moving.table()
    moving.run(*(f"insert into {table} values ({number})" for number in range(100)))
    with moving.client() as client:
        assert ids(of(client, table, 100)) == list(range(100))
        moving.settled()


def test_a_client_that_never_acknowledges_gets_all_of_it_again(place: Place) -> None:
    """After its own end, after the end of the role, and after that of the server."""
    table = place.table()
    place.run(*(f"insert into {table} values ({number})" for number in range(20)))
    before = place.position()
    with place.client() as client:
        first = of(client, table, 20, ack=False)
    with place.client() as client:
        assert [each.text for each in of(client, table, 20, ack=False)] == [each.text for each in first]
        place.kill_role()
        assert client.ended()[0] == grpc.StatusCode.UNAVAILABLE
    with place.client() as client:
        assert ids(of(client, table, 20, ack=False)) == list(range(20))
        assert place.position() == before
        assert place.number("select count(*) from pipeline.walstream_sessions where ended_at is null") == 1


def test_what_was_acknowledged_does_not_come_again(moving: Place) -> None:
    table = moving.table()
    with moving.client() as client:
        moving.run(f"insert into {table} select generate_series(1, 50)", f"insert into {table} values (51)")
        of(client, table, 51)
        moving.settled()
    moving.kill_role()
    with moving.client() as client:
        moving.run(f"insert into {table} values (52)")
        assert ids(of(client, table, 1)) == [52], "not even the last transaction"


def test_acknowledging_a_part_of_a_transaction_skips_nothing(place: Place) -> None:
    table = place.table()
    with place.client() as client:
        with place.source.cursor().copy(f"copy {table} from stdin") as copy:
            copy.write("1\n2\n3\n4\n5\n")
        events = of(client, table, 5, ack=False)
        assert len({event.lsn for event in events}) == 1
        client.ack(events[0].lsn)

        def shown() -> None:
            metrics = place.server.get("/metrics").text
            assert 'pipeline_walstream_sessions{state="connected"} 1.0' in metrics
            assert re.search(r'session_unacknowledged{peer="ipv4:127.0.0.1:\d+"} 4.0', metrics), metrics

        eventually(shown)
    with place.client() as client:
        assert ids(of(client, table, 5)) == [1, 2, 3, 4, 5]
        place.together(*(f"insert into {table} values ({number})" for number in range(6, 9)))
        events = of(client, table, 3, ack=False)
        client.ack(events[0].lsn)
    with place.client() as client:  # the server waits for the first session, too
        assert ids(of(client, table, 8)) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_the_position_follows_the_slower_of_two(moving: Place) -> None:
    table = moving.table()
    with moving.client() as slow, moving.client() as quick:
        before = moving.position()
        moving.run(*(f"insert into {table} values ({number})" for number in range(10)))
        of(quick, table, 10)
        events = of(slow, table, 10, ack=False)
        assert moving.position() == before
        slow.ack(events[4].lsn)  # and all before it
        eventually(lambda: before < moving.position() < moving.head())
        slow.ack(events[9].lsn)
        moving.settled()


def test_acknowledgements_that_mean_nothing(moving: Place) -> None:
    table = moving.table()
    with moving.client() as client:
        moving.run(f"insert into {table} values (1)")
        (event,) = of(client, table, 1)
        moving.settled()
        for lsn in (0, 1, event.lsn, event.lsn, 2**63, 2**64 - 1):
            client.ack(lsn)
        moving.run(f"insert into {table} values (2)")
        (event,) = of(client, table, 1, ack=False)
        client.ack(0)
        client.ack(2**64 - 1)
        moving.run(f"insert into {table} values (3)")
        of(client, table, 1, ack=False)
        assert moving.position() < moving.head() - 1
        client.ack(event.lsn)
        eventually(lambda: moving.position() == moving.head() - 1)


def test_a_killed_server_forgets_nobody_who_owes_something(place: Place) -> None:
    """The client is in another process than the one that comes first after it."""
    table = place.table()
    with place.client() as client:
        place.run(f"insert into {table} values (1), (2)")
        of(client, table, 2, ack=False)
        before = place.position()
        place.kill_role()
    with place.client() as other:
        of(other, table, 2)
        place.run(f"insert into {table} values (3)")
        of(other, table, 1)
        time.sleep(0.5)  # five times as long as it would take
        assert place.position() == before
    with place.client() as back:
        assert ids(of(back, table, 3)) == [1, 2, 3]


def test_the_whole_server_dies_under_clients_of_every_kind(place: Place) -> None:
    table = place.table()
    with Rust(place.port, again_seconds=0.2) as client:
        client.printed("Connected")
        for number in range(3):
            place.run(f"insert into {table} values ({number})")
            client.printed(f'INSERT public.{table}: {{"id":{number}}}')
            place.server.kill()
            place.run(f"insert into {table} values ({number + 100})")
            place.server = place.start(**place.settings)
            client.printed(f'INSERT public.{table}: {{"id":{number + 100}}}')
        client.printed("Connected", times=4)
        assert not client.has_exited


def test_another_process_answers_who_serves_the_wire(moving: Place) -> None:
    port = free_port()
    other = moving.start(arguments=("serve", "--only", "grpc"), wait=False, **{**moving.settings, "grpc_port": port})
    listening(port)
    table = moving.table()
    with moving.client() as client:
        moving.run(f"insert into {table} values (0)")
        assert ids(of(client, table, 1)) == [0]  # connected is not yet served
        with Client(f"127.0.0.1:{port}") as second:
            status, words = second.ended()
        assert status == grpc.StatusCode.UNAVAILABLE
        assert "one process at a time" in words
        assert f"server {os.uname().nodename}:{moving.server.process.pid}" in words, words
        moving.run(f"insert into {table} values (1)")
        assert ids(of(client, table, 1)) == [1], "the first goes on"
        moving.settled()
    other.process.send_signal(signal.SIGTERM)
    assert other.process.wait(120) == 0


def test_a_slow_client_holds_the_position_and_nobody_up(place: Place) -> None:
    """The first kind reads nothing at all, the second acknowledges nothing."""
    table = place.table("id int primary key, note text")
    rows = 1_000
    with Connection(place.port, window=1 << 16) as frozen, place.client() as slow, place.client() as quick:
        frozen.call().connected.wait(60)
        before = place.position()
        place.run(f"insert into {table} select n, repeat('x', 800) from generate_series(1, {rows}) n")
        assert ids(of(quick, table, rows)) == list(range(1, rows + 1))
        place.run(f"insert into {table} values (0)")
        assert ids(of(quick, table, 1)) == [0]
        events = of(slow, table, rows + 1, ack=False)
        assert ids(events) == [*range(1, rows + 1), 0]
        assert place.position() == before
        for event in events[:rows]:
            slow.ack(event.lsn)
