"""Connections that send nothing, or half a request, need no token and delay no other request."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from pipeline.api import app, http_protocol
from tests.fixtures.api import Api, answering

HALF = b"GET /healthz HTTP/1.1\r\nhost: loc"


@pytest.fixture
def opened(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Api, ExitStack]]:
    monkeypatch.setattr(http_protocol, "MAX_CONNECTIONS", 20)
    with ExitStack() as stack:
        yield stack.enter_context(answering(database_dsn)), stack


def half_open(api: Api, stack: ExitStack, data: bytes) -> socket.socket:
    line = stack.enter_context(socket.create_connection(("127.0.0.1", api.config.http_port)))
    line.settimeout(60)
    if data:
        line.sendall(data)
    return line


def is_closed(line: socket.socket) -> bool:
    """Waits for it."""
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    ("limits", "becomes"),
    [
        ((1024, 4096), (4096, 4096)),
        ((65_536, resource.RLIM_INFINITY), (65_536, resource.RLIM_INFINITY)),
        ((524_288, 524_288), (524_288, 524_288)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY),) * 2,
    ],
)
def test_the_limit_of_open_files_is_only_raised(
    limits: tuple[int, int], becomes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _: now[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: now.append(new))
    http_protocol.limited()
    assert now[-1] == becomes


@pytest.mark.parametrize("data", [b"", HALF])
def test_the_oldest_give_way_to_who_asks(data: bytes, opened: tuple[Api, ExitStack]) -> None:
    api, stack = opened
    lines = [half_open(api, stack, data) for _ in range(60)]
    assert httpx.get(f"{api.url}/healthz", timeout=60).text == "ok\n"
    assert all(is_closed(line) for line in lines[:20])


@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"])
def test_half_a_request_is_closed_after_a_while(
    before: bytes, opened: tuple[Api, ExitStack], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, stack = opened
    with monkeypatch.context() as patch:
        if not before:
            patch.setattr(http_protocol, "HEAD_SECONDS", 0.2)
        line = half_open(api, stack, before or HALF)
        if before:  # which must be read in time
            answer = b""
            while not answer.endswith(b"ok\n"):
                answer += line.recv(100)
            assert answer.startswith(b"HTTP/1.1 ")
            patch.setattr(http_protocol, "HEAD_SECONDS", 0.2)
            line.sendall(HALF)
        assert is_closed(line)
    assert httpx.get(f"{api.url}/healthz", timeout=60).text == "ok\n"


def test_errors_of_sockets_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    said = app.QuietSockets()
    loop = asyncio.new_event_loop()
    with caplog.at_level(logging.ERROR):
        for _ in range(1_000):
            said(loop, {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many")})
        said(loop, {"message": "something else", "exception": RuntimeError("x")})
    loop.close()
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "socket.accept() out of system resource",
        "something else",
    ]
