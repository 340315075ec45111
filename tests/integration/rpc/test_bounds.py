"""What clients without a token may hold of the role grpc, and for how long."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import psycopg
import pytest
from grpc_health.v1 import health_pb2

from pipeline.rpc import health, server
from tests.fixtures.postgres import Cluster
from tests.fixtures.rpc import Rpc, refused
from tests.fixtures.small_log import small_log
from tests.fixtures.waiting import eventually

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
SERVING = health_pb2.HealthCheckResponse.SERVING
EVENT_LOG = "pipeline.v1.EventLog"


@pytest.fixture(scope="module")
def dsn(cluster: Cluster) -> Iterator[str]:
    with cluster.database("events", cluster.template) as made, small_log(made, 20):
        yield made


@contextmanager
def served(dsn: str, **settings: Any) -> Iterator[Rpc]:
    """The role from when it has made its sessions, until it has ended those that only calls need.

    A stop before that would leave one half made, or half ended, to the garbage collector, which complains.
    """
    made, ended = (
        f"select count(distinct application_name) from pg_stat_activity where datname = current_database() and {which}"
        for which in (
            "application_name ~ '^pipeline (wakeup .*|grpc|grpc role)$' and query <> ''",
            "application_name = 'pipeline feed'",
        )
    )
    with Rpc(dsn, **settings) as rpc, psycopg.connect(dsn, autocommit=True) as log:
        eventually(lambda: log.execute(made).fetchone() == (3,))
        yield rpc
        eventually(lambda: log.execute(ended).fetchone() == (0,))


def connected(rpc: Rpc) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(rpc.config.grpc_port)), timeout=60)


def read_to_the_end(client: socket.socket) -> None:
    """Fails by TimeoutError if the server does not end the connection."""
    while client.recv(65_536):
        continue


def call_of(rpc: Rpc, method: str, requests: Iterator[Any]) -> Any:
    made = rpc.channel.stream_stream(
        f"/{health.NAME}/{method}",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    return made(requests, timeout=60)


def watched(rpc: Rpc) -> Any:
    """A call that watches, and has had its first answer."""
    call = call_of(rpc, "Watch", iter([health_pb2.HealthCheckRequest(service=EVENT_LOG)]))
    assert next(call).status == SERVING
    return call


@pytest.mark.parametrize(
    ("setting", "sent"),
    [("HANDSHAKE_SECONDS", b""), ("IDLE_SECONDS", PREFACE + SETTINGS)],
    ids=["in its handshake", "without a call"],
)
def test_a_connection_that_is_silent_ends(dsn: str, monkeypatch: pytest.MonkeyPatch, setting: str, sent: bytes) -> None:
    monkeypatch.setattr(server, setting, 0.3)
    with served(dsn) as rpc, connected(rpc) as client:
        client.sendall(sent)
        read_to_the_end(client)


def test_connections_are_bounded_and_the_newest_is_refused(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 4)
    with served(dsn) as rpc, ExitStack() as stack:
        older = watched(rpc)
        clients = [stack.enter_context(connected(rpc)) for _ in range(3)]
        for client in clients:
            assert client.recv(9)[3] == 4, "the server's first frame is SETTINGS"
        with connected(rpc) as newest:
            read_to_the_end(newest)
        assert older.is_active() and all(client.fileno() >= 0 for client in clients)
        older.cancel()


def test_the_bound_is_what_the_process_may_open() -> None:
    program = (
        "import resource; from pipeline.process import open_files; from pipeline.rpc import server\n"
        "for soft, hard in ((1_024, 8_000), (200, 4_096)):\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))\n"
        "    print(open_files.raise_limit(server.MOST_CONNECTIONS), *resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    said = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert said.stdout.splitlines() == ["5000 8000 8000", "3996 4096 4096"]


@pytest.mark.parametrize("method", ["Check", "Watch"])
def test_a_call_of_health_whose_message_does_not_come_ends(
    dsn: str, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(health, "MESSAGE_SECONDS", 0.2)
    never = threading.Event()

    def requests() -> Iterator[Any]:
        never.wait(60)
        yield health_pb2.HealthCheckRequest()

    with served(dsn, api_token="geheim") as rpc:
        with refused(grpc.StatusCode.DEADLINE_EXCEEDED, "did not come within 0.2 s"):
            next(call_of(rpc, method, requests()))
        never.set()
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "is not of the type"):
            next(call_of(rpc, method, iter([])))


def test_the_oldest_call_of_health_ends_for_a_new_one(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MOST_CALLS", 2)
    with served(dsn) as rpc:
        reading = rpc.read(follow=True)
        assert next(reading).changes[0].seq == 1
        calls = [watched(rpc) for _ in range(3)]
        with refused(grpc.StatusCode.UNAVAILABLE, "too many clients"):
            next(calls[0])
        check: Callable[..., Any] = rpc.channel.unary_unary(
            f"/{health.NAME}/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        for _ in range(5):
            assert check(health_pb2.HealthCheckRequest(service=EVENT_LOG), timeout=60).status == SERVING
        with refused(grpc.StatusCode.UNAVAILABLE, "too many clients"):
            next(calls[1])
        assert calls[2].is_active() and reading.is_active(), "a call of another service never ends for a new one"
        reading.cancel()
