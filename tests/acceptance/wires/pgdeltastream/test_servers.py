"""A session outlives the server that made it: any server on its pipeline database streams it, one at a time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import httpx
import pytest

from tests.fixtures.delta_stream import Client, reaches, refusal, values
from tests.fixtures.server import Serving
from tests.fixtures.slots import drop_slot
from tests.fixtures.waiting import eventually
from tests.fixtures.wire_place import Place

pytestmark = pytest.mark.xdist_group("pgdeltastream")


@pytest.fixture(scope="module")
def other(place: Place) -> Iterator[Serving]:
    """A second server, of which only the API runs."""
    server = place.start(arguments=("serve", "--only", "api"), wires="pgdeltastream", sessions_max=40, wait=False)
    eventually(lambda: server.get("/healthz").is_success, errors=(httpx.TransportError,))
    yield server
    server.close()


@pytest.fixture(scope="module")
def second(other: Serving) -> Iterator[Client]:
    client = Client(other.port)
    yield client
    client.close()


@pytest.fixture(scope="module")
def table(place: Place) -> str:
    return place.table("id int primary key")


def test_either_server_streams_it_but_not_both_at_once(place: Place, second: Client, table: str) -> None:
    slot = second.init()
    place.source.execute(f"insert into {table} values (1)".encode())
    assert second.page(table, slotName=slot).json() == []
    with place.client.stream(slot) as line:
        assert values(line.changes()[0]) == {"id": 1}
        walsenders = "select from pg_stat_activity where backend_type = 'walsender' and application_name like %s"
        eventually(lambda: place.source.execute(walsenders, [f"% {slot}"]).rowcount == 1)
        assert second.page(table, slotName=slot).status_code == 500, "the snapshot ended with the stream's beginning"
        code, reason = refusal(second, slot)
        assert code == 4409
        assert "127.0.0.1:" in reason, "who has it"
        line.ack(line.frames[-1]["nextlsn"])
        reaches(place.source, slot, line.frames[-1]["nextlsn"])
        place.source.execute(f"insert into {table} values (2)".encode())
        assert values(line.changes()[0]) == {"id": 2}, "the first goes on"
    with second.again(slot) as line:
        assert values(line.changes()[0]) == {"id": 2}


def test_a_killed_server_leaves_its_sessions_to_the_others(
    place: Place, other: Serving, second: Client, table: str
) -> None:
    slot, unread = second.init(), second.init()
    with second.stream(slot) as line:
        place.source.execute(f"insert into {table} values (10)".encode())
        frame = line.next()
        os.kill(other.child_pid("api"), signal.SIGKILL)
        assert line.closed()[0] in (1006, 1012)
    for name in (slot, unread):
        with place.client.again(name) as line:
            assert line.next() == frame, "nothing was acknowledged"
    over = place.client.page(table, slotName=unread)
    assert (over.status_code, over.text) == (500, '{"error":"unable to get snapshot data"}'), "it went with the process"


def test_a_server_that_stops_says_so(place: Place, other: Serving, second: Client, table: str) -> None:
    eventually(lambda: other.get("/healthz").is_success, errors=(httpx.TransportError,))
    slot = second.init()
    with second.stream(slot) as line:
        place.source.execute(f"insert into {table} values (15)".encode())
        frame = line.next()
        other.process.terminate()
        assert line.closed() == (1012, "the server is stopping; connect again")
    assert other.process.wait(120) == 0
    with place.client.again(slot) as line:
        assert line.next() == frame


def test_a_slot_that_is_dropped_by_hand_is_said_to_be_gone(place: Place, table: str) -> None:
    idle, busy = place.client.init(), place.client.init()
    place.source.execute("select pg_drop_replication_slot(%s)", [idle])
    code, reason = refusal(place.client, idle)
    assert code == 4410, (code, reason)
    assert idle in reason
    with place.client.stream(busy) as line:
        place.source.execute(f"insert into {table} values (20)".encode())
        line.next()
        ending = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s"
        place.source.execute(ending, [busy])
        drop_slot(place.source, busy)
        assert line.closed()[0] in (1012, 4410)
    assert refusal(place.client, busy)[0] == 4410
    assert place.client.page(table, slotName=idle).status_code in (500, 503)
