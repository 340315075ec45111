"""Whatever bytes clients send, nothing crashes and the others are served all along."""

from __future__ import annotations

import base64
import logging
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from tests.fixtures.small_log import add_inserts, small_log
from tests.fixtures.streaming import Streaming, announce
from tests.fixtures.waiting import eventually

SECONDS = 5
SEED = 20_261_121
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


@pytest.fixture
def log(database_dsn: str) -> Iterator[psycopg.Connection]:
    with small_log(database_dsn, 300) as connection:
        yield connection


@pytest.fixture
def api(log: psycopg.Connection, database_dsn: str) -> Iterator[Streaming]:
    with Streaming(database_dsn) as running:
        yield running


class Vandal:
    """Raw connections that upgrade, and then send what a WebSocket client would not."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._random = random.Random(seed)

    def connect(self, path: str, *, key: bool = True) -> socket.socket:
        line = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        headers = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade"]
        if key:
            headers += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}"]
        line.sendall("\r\n".join([*headers, "", ""]).encode())
        return line

    def upgraded(self, path: str) -> socket.socket:
        """A connection on which frames are spoken."""
        line = self.connect(path)
        said = b""
        while not said.endswith(b"\r\n\r\n"):
            said += line.recv(1)
        assert said.startswith(b"HTTP/1.1 101 ")
        return line

    def frame(self) -> bytes:
        """Well made now and then; else with a wrong opcode, size, mask or flag, or of noise alone."""
        draw = self._random
        if draw.random() < 0.1:
            return draw.randbytes(draw.randint(1, 2_000))
        opcode = draw.choice([0, TEXT, TEXT, TEXT, BINARY, CLOSE, PING, PONG, draw.randrange(16)])
        flags = draw.choice([0x80, 0x80, 0x80, 0x00, draw.randrange(16) << 4])
        body = draw.choice(
            [b'{"ack": 3}', b'{"ack": 1e999}', b"\xff\xfe", b"[" * 5_000, b"", b"x" * 70_000, b"\x03\xe8"]
        )
        if draw.random() < 0.3:
            body = draw.randbytes(draw.randint(0, 200))
        return _frame(flags | opcode, body, masked=draw.random() < 0.9, mask=draw.randbytes(4))

    def act(self) -> None:
        """One connection that does harm, and may hang up without a word."""
        draw = self._random
        path = draw.choice(["/v1/consumers/hurt/stream", "/v1/consumers/none/stream", "/v1/consumers/%00/stream"])
        with suppress(OSError), self.connect(path, key=draw.random() < 0.9) as line:
            line.settimeout(draw.choice([0.01, 0.2]))
            if draw.random() < 0.8:
                line.recv(1_000)
            for _ in range(draw.randint(1, 20)):
                line.sendall(self.frame())
                if draw.random() < 0.3:
                    with suppress(TimeoutError):
                        line.recv(65_536)


def _frame(first: int, body: bytes, *, masked: bool, mask: bytes) -> bytes:
    size = len(body)
    length = (
        bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2) if size < 65_536 else b"\x7f" + size.to_bytes(8)
    )
    if not masked:
        return bytes([first]) + length + body
    hidden = bytes(byte ^ mask[place % 4] for place, byte in enumerate(body))
    return bytes([first, length[0] | 0x80]) + length[1:] + mask + hidden


def test_broken_frames_crash_nothing_and_others_are_served_all_along(
    api: Streaming, log: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    api.create("hurt")
    api.create("well", start="now")
    vandal = Vandal(api.config.http_port, SEED)
    acts = 0
    with caplog.at_level(logging.WARNING), api.stream("well") as client:
        client.next()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until or acts < 100:
            for _ in range(20):
                vandal.act()
            acts += 20
            last = add_inserts(log, 3)
            announce(log)
            client.read_to(last)
    assert client.seqs == list(range(301, last + 1))
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_cursor_is_free_again_after_vandals(api: Streaming) -> None:
    api.create("hurt")
    vandal = Vandal(api.config.http_port, SEED + 1)
    for _ in range(50):
        vandal.act()
    eventually(lambda: api.consumer("hurt")["reader"] is None)
    with api.stream("hurt") as client:
        client.read_to(300)
    assert client.seqs[-1] == 300


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (_frame(0x81, b"\xff\xfe", masked=True, mask=b"abcd"), 1007),
        (_frame(0x82, b"{}", masked=True, mask=b"abcd"), 1003),
        (_frame(0x81, b'{"ack": 1}', masked=False, mask=b"abcd"), 1002),
        (_frame(0x83, b"", masked=True, mask=b"abcd"), 1002),
        (_frame(0xC1, b"{}", masked=True, mask=b"abcd"), 1002),
        (_frame(0x81, b"x" * 65_537, masked=True, mask=b"abcd"), 1009),
        (
            _frame(0x01, b"x" * 40_000, masked=True, mask=b"abcd")
            + _frame(0x80, b"x" * 40_000, masked=True, mask=b"1234"),
            1009,
        ),
    ],
    ids=["not UTF-8", "binary", "no mask", "opcode", "compressed", "large", "large in fragments"],
)
def test_each_broken_frame_has_its_close_code(api: Streaming, sent: bytes, code: int) -> None:
    api.create("hurt", start="now")
    with Vandal(api.config.http_port, SEED).upgraded("/v1/consumers/hurt/stream") as line:
        line.sendall(sent)
        said = b""
        with suppress(ConnectionResetError):
            while chunk := line.recv(65_536):
                said += chunk
    assert b"\x88" in said
    assert code.to_bytes(2) in said[said.rindex(b"\x88") :]
