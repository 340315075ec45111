"""Streams, long polls and kept connections go on while incomplete requests fill all places that they may have."""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial

import httpx
import pytest

from pipeline.api import access_guard, http_protocol
from tests.fixtures import plain_http, streaming
from tests.fixtures.api import Api, answering
from tests.fixtures.background import BackgroundThread
from tests.fixtures.small_log import add_inserts, small_log
from tests.fixtures.waiting import eventually

TOKEN = "correct horse battery staple"
MOST, OPEN = 60, 30
"""Connections that the server takes, of which a tenth may be incomplete; and those that each flood keeps open."""
BATCHES, EACH = 20, 5
EVERY = list(range(1, BATCHES * EACH + 1))
BEARER = {"authorization": f"Bearer {TOKEN}"}
_HEAD = f" HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n".encode()
_BODY = b"POST /v1/consumers" + _HEAD + b"content-type: application/json\r\n"
FLOODS = {
    "silent": b"",
    "half a head": b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: ",
    "half a body": _BODY + b"content-length: 9\r\n\r\n{",
    "chunks without an end": _BODY + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
    "half a handshake": b"GET /v1/consumers/c/stream" + _HEAD + b"connection: upgrade\r\nupgrade: websocket\r\n",
}


class Flood(BackgroundThread):
    """Connections of one kind, one after the other. `is_full`: the server has ended one for a newer one."""

    def __init__(self, port: int, sent: bytes) -> None:
        super().__init__()
        self._port, self._sent = port, sent
        self._open = deque[socket.socket]()
        self.is_full = threading.Event()

    def work(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._close)
            while not self.stopped.wait(0.005):
                with suppress(OSError):
                    self._open.append(socket.create_connection(("127.0.0.1", self._port), timeout=60))
                    self._open[-1].sendall(self._sent)
                if len(self._open) > OPEN:
                    with closing(self._open.popleft()) as oldest:
                        if select.select([oldest], [], [], 0)[0]:
                            self.is_full.set()

    def _close(self) -> None:
        for line in self._open:
            line.close()


class Poller(BackgroundThread):
    def __init__(self, port: int, wait: int) -> None:
        super().__init__()
        self._port, self._wait = port, wait
        self.seqs: list[int] = []
        self.lines = set[tuple[str, int]]()

    def work(self) -> None:
        with plain_http.client(self._port, headers=BEARER, timeout=70) as http:
            while len(self.seqs) < len(EVERY) and not self.stopped.wait(0 if self._wait else 0.02):
                after = self.seqs[-1] if self.seqs else 0
                answer = http.get("/v1/events", params={"after": after, "limit": 10, "wait": self._wait})
                assert answer.status_code == 200, answer.text
                self.lines.add(answer.extensions["network_stream"].get_extra_info("client_addr"))
                self.seqs += [event["seq"] for event in answer.json()["data"]]

    def finish(self) -> None:
        self.join(60)
        assert self.error is None
        assert (self.seqs, len(self.lines)) == (EVERY, 1)


@pytest.fixture
def api(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """It ends incomplete requests only for newer ones, and idle connections of complete ones for nothing else."""
    monkeypatch.setattr(http_protocol, "MAX_CONNECTIONS", MOST)
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 600)
    monkeypatch.setattr(http_protocol.LimitedHttp, "timeout_keep_alive_handler", lambda _: None)
    monkeypatch.setattr(access_guard, "BODY_SECONDS_WITH_TOKEN", 600)
    with answering(database_dsn, source_dsn=database_dsn, api_token=TOKEN) as api:
        yield api


def test_consumers_get_every_event_in_order_during_a_flood(api: Api, database_dsn: str) -> None:
    port = api.config.http_port
    api.client.headers.update(BEARER)
    assert api.post("/v1/consumers", name="c", kind="cursor", start="beginning").status_code == 201
    with small_log(database_dsn, 0) as log, ExitStack() as stack:
        stream = stack.enter_context(streaming.stream(port, "c", additional_headers=BEARER))
        pollers = [stack.enter_context(Poller(port, wait)) for wait in (0, 60)]
        last = add_inserts(log, EACH)
        streaming.announce(log)
        stream.read_to(last)
        eventually(lambda: all(poller.seqs for poller in pollers))  # a connection that is new yields to newer ones
        floods = {kind: stack.enter_context(Flood(port, sent)) for kind, sent in FLOODS.items()}
        assert {kind for kind, flood in floods.items() if not flood.is_full.wait(60)} == set()
        for number in range(1, BATCHES):
            last = add_inserts(log, EACH)
            streaming.announce(log)
            stream.read_to(last)
            if number % 5 == 0:
                assert stream.ack(last) == last
        for poller in pollers:
            poller.finish()
        assert stream.seqs == EVERY
        new = partial(api.get, "/v1/consumers")
        eventually(lambda: new().status_code == 200, errors=(AssertionError, httpx.TransportError))
