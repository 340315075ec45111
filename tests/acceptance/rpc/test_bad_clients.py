"""Clients that send what they should not: each is told, or dropped, and the others go on."""

from __future__ import annotations

import random
import socket
import time
from collections import deque
from contextlib import suppress

import grpc
import h2.exceptions
import httpx
import pytest

from pipeline.rpc.protos import plugin_pb2 as pb
from tests.fixtures.bare_http2 import SESSION, Call, Connection, frame
from tests.fixtures.event_log import EventLog
from tests.fixtures.grpc_place import SECRET, TOKEN, Place, ids, listening, of
from tests.fixtures.postgres import free_port
from tests.fixtures.processes import own_megabytes
from tests.fixtures.rpc import refused
from tests.fixtures.waiting import eventually
from tests.fixtures.walstream import Client

pytestmark = pytest.mark.xdist_group("rpc")
INVALID, INTERNAL, UNIMPLEMENTED, EXHAUSTED = 3, 13, 12, 8
STREAMS = 2_000
EVENT_LOG = "/pipeline.v1.EventLog"


def goes_on(place: Place) -> None:
    """The same process serves both protocols."""
    table = place.table()
    with place.client() as client, EventLog(place.address, TOKEN) as log:
        place.run(f"insert into {table} values (1)")
        assert ids(of(client, table, 1)) == [1]
        (found,) = log.read(tables=[f"public.{table}"])
        assert found.changes[0].record == '{"id": 1}'


def test_http_at_the_grpc_port_and_grpc_at_the_http_port(place: Place) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{place.port}/healthz", timeout=20)
    with Client(f"127.0.0.1:{place.server.port}", wait=False) as client:
        status, words = client.ended()
    assert status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL), words
    goes_on(place)
    assert place.server.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    ("message", "statuses"),
    [
        (frame(b"\xff" * 40), {INVALID}),
        (frame(b"\x0a\x7f" + SECRET.encode()), {INVALID}),
        (b"\x01" + frame(b"not compressed")[1:], {INTERNAL, UNIMPLEMENTED}),
        (b"\x00\x7f\xff\xff\xff" + b"x" * 100, {EXHAUSTED}),
    ],
    ids=["garbage", "cut", "compressed", "huge"],
)
def test_a_message_of_garbage_ends_its_call_alone(place: Place, message: bytes, statuses: set[int]) -> None:
    with Connection(place.port) as connection:
        for path in (SESSION, f"{EVENT_LOG}/Read", f"{EVENT_LOG}/Ack", "/grpc.health.v1.Health/Check"):
            call = connection.call(path, ("authorization", f"Bearer {TOKEN}"))
            connection.send(call.stream, message, end=True)
            assert call.done.wait(60), path
            assert call.status in statuses, (path, call.headers)
        second = connection.call()
        assert second.connected.wait(60), "on the same connection"
        second.ack(1)
        assert not second.done.is_set()
    goes_on(place)


def test_bytes_that_are_no_http2_end_their_connection_alone(place: Place) -> None:
    chance = random.Random(29)
    for size in (1, 9, 100, 100_000):
        with socket.create_connection(("127.0.0.1", place.port), 20) as line:
            try:
                line.sendall(chance.randbytes(size))
                line.shutdown(socket.SHUT_WR)
                while line.recv(1 << 16):
                    pass
            except OSError:
                continue
    goes_on(place)


def test_calls_that_are_not_there(place: Place) -> None:
    with Connection(place.port) as connection:
        for path in ("/plugin.PluginService/No", "/no.Such/Call", "/", "/pipeline.v1.EventLog/Read/x"):
            call = connection.call(path, ("authorization", f"Bearer {TOKEN}"))
            connection.send(call.stream, b"", end=True)
            assert call.done.wait(60)
            assert call.status == UNIMPLEMENTED, (path, call.headers)
    goes_on(place)


def another(connection: Connection, path: str, streams: deque[int]) -> Call:
    """A call beside as many others as there may be; the oldest goes for it."""
    while True:
        try:
            return connection.call(path, ("authorization", f"Bearer {TOKEN}"))
        except h2.exceptions.TooManyStreamsError:
            with suppress(h2.exceptions.ProtocolError):  # it has ended by itself
                connection.reset(streams.popleft())


@pytest.mark.parametrize("path", [f"{EVENT_LOG}/Read", pytest.param(SESSION, marks=pytest.mark.long)])
def test_thousands_of_streams_on_one_connection(place: Place, path: str) -> None:
    """As many as it wants and more, against what it was told: others are served meanwhile, and nothing stays."""
    role = place.server.child_pid("grpc")
    before = own_megabytes(role)
    with Connection(place.port) as connection:
        call = connection.call()
        assert call.connected.wait(60)
        limit = int(connection.h2.remote_settings.max_concurrent_streams)
        assert limit <= STREAMS / 2
        begun, streams = 0, deque([call.stream])
        with suppress(OSError):  # where it is sent away, which is its own fault
            for _ in range(STREAMS):
                streams.append(another(connection, path, streams).stream)
                begun += 1
        assert begun >= limit - 1
        eventually(lambda: goes_on(place), errors=(grpc.RpcError,))
    eventually(lambda: goes_on(place), errors=(grpc.RpcError,))
    assert place.server.child_pid("grpc") == role
    eventually(lambda: place.number("select count(*) from pipeline.walstream_sessions where ended_at is null") == 0)
    assert own_megabytes(role) < before + 150


def test_who_reads_nothing_holds_nobody_up(place: Place) -> None:
    table = place.table("id int primary key, note text")
    place.run(f"insert into {table} select n, repeat('x', 4000) from generate_series(1, 500) n")
    place.logged(500, table)
    role = place.server.child_pid("grpc")
    with Connection(place.port, window=1 << 16) as frozen:
        for path, message in ((SESSION, None), ("/pipeline.v1.EventLog/Read", b"")):
            call = frozen.call(path, ("authorization", f"Bearer {TOKEN}"))
            if message is not None:
                call.send(message, end=True)
            assert call.connected.wait(60)
        goes_on(place)
        with EventLog(place.address, TOKEN) as log:
            began = time.monotonic()
            assert sum(len(each.changes) for each in log.read(tables=[f"public.{table}"])) == 500
            assert time.monotonic() - began < 20
        assert own_megabytes(role) < 400


def test_acknowledgements_without_end(place: Place) -> None:
    """Of one who was sent nothing: they mean nothing and are kept nowhere."""
    with Connection(place.port) as connection:
        call = connection.call()
        assert call.connected.wait(60)
        one = frame(pb.ClientMessage(ack=pb.ClientAck(pg_lsn=7)).SerializeToString())
        for _ in range(30):
            try:
                connection.send(call.stream, one * 200)
            except h2.exceptions.FlowControlError:
                time.sleep(0.02)
        assert not call.done.is_set()
    goes_on(place)


def test_a_wire_that_is_not_served_names_the_setting(place: Place) -> None:
    port = free_port()
    settings = {**place.settings, "wires": "", "open_wires": "", "grpc_port": port}
    other = place.start(arguments=("serve", "--only", "grpc"), wait=False, **settings)
    listening(port)
    with Client(f"127.0.0.1:{port}", TOKEN) as client:
        status, words = client.ended()
    assert status == grpc.StatusCode.UNIMPLEMENTED
    assert "add walstream to PIPELINE_WIRES" in words
    with EventLog(f"127.0.0.1:{port}", TOKEN) as log, refused(grpc.StatusCode.NOT_FOUND, "no consumer"):
        list(log.read(consumer="nobody"))
    assert other.stop() == 0
