"""A cursor's reader is let go of when its server is killed, frozen or stopped, and what was acknowledged stays so."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import psycopg
import pytest
from websockets.exceptions import ConnectionClosed, InvalidMessage

from pipeline.process.child import DRAIN_SECONDS
from tests.fixtures.processes import alive
from tests.fixtures.server import Serving, Shared
from tests.fixtures.streaming import Stream, again, stream
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group("stream crashes")  # for --dist loadgroup: what adds rows comes last


@pytest.fixture(scope="module")
def source(shared: Shared) -> Iterator[psycopg.Connection]:
    with psycopg.connect(shared.source_dsn, autocommit=True) as connection:
        connection.execute("create table t (id int primary key)")
        yield connection


@pytest.fixture(scope="module")
def running(source: psycopg.Connection, shared: Shared) -> Serving:
    """It replicates a hundred rows."""
    started = shared.serve(snapshot="never")
    source.execute("insert into t select generate_series(1, 100)")
    return started


@pytest.fixture
def server(running: Serving) -> Serving:
    """It answers, and has a cursor `c` that begins before them."""
    answers(running)
    httpx.delete(f"http://127.0.0.1:{running.port}/v1/consumers/c", timeout=60)
    create(running, "c")
    return running


@pytest.fixture(scope="module")
def another(running: Serving, shared: Shared) -> Serving:
    """A second api process."""
    return shared.serve(arguments=("serve", "--only", "api"), wait=False)


@pytest.fixture
def second(another: Serving) -> Serving:
    answers(another)
    return another


def answers(server: Serving) -> None:
    eventually(lambda: server.get("/healthz").is_success, 60, (httpx.TransportError,))


def create(server: Serving, name: str) -> None:
    body = {"name": name, "kind": "cursor", "start": "beginning"}
    answer = httpx.post(f"http://127.0.0.1:{server.port}/v1/consumers", json=body, timeout=60)
    assert answer.status_code == 201, answer.text


def reads(port: int) -> int:
    """Where the cursor is, as soon as it lets us read it there."""
    with stream(port, "c") as client:
        frame = client.next()
        assert frame["type"] == "ready", frame
        return int(frame["position"])


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


UNREACHABLE = (AssertionError, OSError, ConnectionClosed, InvalidMessage)


def test_killing_the_whole_server_loses_and_repeats_nothing(server: Serving) -> None:
    seen: list[int] = []
    position = 0
    for _ in range(3):
        with suppress(ConnectionClosed), again(server.port, "c") as client:
            assert client.frames[0]["position"] == position
            client.read_to(position + 10)
            position = client.ack(position + 10)
            os.kill(server.child_pid("api"), signal.SIGKILL)
            _end(client)
        seen += [seq for seq in client.seqs if seq <= position]
    assert seen == list(range(1, 31))


def test_a_frozen_api_process_loses_its_cursors_and_cannot_acknowledge(server: Serving, second: Serving) -> None:
    with stream(second.port, "c") as zombie:
        zombie.read_to(100)
        assert zombie.ack(50) == 50
        with frozen(second.child_pid("api")), frozen(second.process.pid):
            zombie.line.send('{"ack": 90}')
            assert eventually(lambda: reads(server.port), errors=UNREACHABLE) == 50
            survivor = again(server.port, "c")
            client = survivor.__enter__()
            client.read_to(100)
        ended = _end(zombie)
    assert ended in (1006, 1012)
    assert client.seqs == list(range(51, 101))
    assert client.ack(100) == 100
    survivor.__exit__(None, None, None)


def test_a_killed_api_process_frees_its_cursors_and_keeps_acknowledgements(
    server: Serving, second: Serving, source: psycopg.Connection
) -> None:
    with suppress(ConnectionClosed), stream(server.port, "c") as client:
        client.read_to(60)
        assert client.ack(60) == 60
        with pytest.raises(AssertionError, match="is read by"):
            reads(second.port)
        evicted = second.log().count("cursor.evicted")
        os.kill(server.child_pid("api"), signal.SIGKILL)
        assert eventually(lambda: reads(second.port), errors=UNREACHABLE) == 60
        assert second.log().count("cursor.evicted") == evicted, "not as from one that is frozen"
    source.execute("insert into t values (101)")
    with again(second.port, "c") as client:
        client.read_to(101)
        assert client.seqs == list(range(61, 102))


def test_a_stopping_server_ends_in_time_although_a_client_does_not_read(
    server: Serving, source: psycopg.Connection
) -> None:
    create(server, "slow")
    source.execute("alter table t add text text")
    source.execute("insert into t select n, repeat('x', 20000) from generate_series(1001, 3000) n")
    with stream(server.port, "c") as client, stream(server.port, "slow", max_queue=1, close_timeout=0):
        client.read_to(2_100)
        asked = time.monotonic()
        api = server.child_pid("api")
        os.kill(api, signal.SIGTERM)
        assert _end(client) == 1012
        eventually(lambda: not alive(api))
        assert time.monotonic() - asked < DRAIN_SECONDS, "it ended without a kill"


def _end(client: Stream) -> int:
    """The close code; 1006 when there was none."""
    try:
        while True:
            client.next(60)
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd else 1006
