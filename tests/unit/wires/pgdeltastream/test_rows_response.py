"""Answers of any size over real connections: whole, an error, or visibly torn; they end with their client."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import Response
from starlette.requests import Request

from pipeline.api import http_protocol
from pipeline.wires.pgdeltastream import answers
from pipeline.wires.pgdeltastream.endpoints import RowsResponse
from tests.fixtures.waiting import PATIENCE, eventually

CHUNK = b"x" * 100_000


class Rows:
    """An application that answers with rows as the path says, and counts."""

    def __init__(self) -> None:
        self.sent = self.ended = 0
        self.begun = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        await Request(scope, receive).body()
        answer = RowsResponse(self.chunks(scope["path"].removeprefix("/")), self.failed)
        await answer(scope, receive, send)

    async def chunks(self, how: str) -> AsyncGenerator[bytes, None]:
        try:
            self.begun.set()
            if how == "early":
                raise KeyError("no rows")
            if how == "never":
                await asyncio.get_running_loop().create_future()
            yield b"["
            if how == "torn":
                yield b"1,"
                raise KeyError("the source went away")
            while how == "endless":
                self.sent += 1
                yield CHUNK
            yield b"1,2]"
        finally:
            self.ended += 1

    def failed(self, _error: Exception) -> Response:
        return answers.refused(500, "unable to get snapshot data")


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def port(rows: Rows) -> Iterator[int]:
    settings = uvicorn.Config(
        rows, http=http_protocol.limited(), log_config=None, lifespan="off", timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(settings)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        eventually(lambda: server.started)
        yield listener.getsockname()[1]
        server.force_exit = server.should_exit = True
        thread.join(30)


def asked(port: int, path: str, version: str = "1.1") -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), timeout=30)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    line.sendall(f"GET /{path} HTTP/{version}\r\nhost: localhost\r\n\r\n".encode())
    return line


def test_a_whole_one(port: int, rows: Rows) -> None:
    answer = httpx.get(f"http://127.0.0.1:{port}/whole", timeout=PATIENCE)
    assert (answer.status_code, answer.text) == (200, "[1,2]")
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    with asked(port, "whole", "1.0") as line:
        said = b"".join(iter(lambda: line.recv(65_536), b""))
    assert said.endswith(b"\r\n\r\n[1,2]")
    assert rows.ended == 2


def test_an_error_before_the_first_row_is_the_answer(port: int) -> None:
    answer = httpx.get(f"http://127.0.0.1:{port}/early", timeout=PATIENCE)
    assert (answer.status_code, answer.text) == (500, '{"error":"unable to get snapshot data"}')
    assert answer.headers["content-type"] == "application/json; charset=utf-8"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_no_client_takes_a_torn_answer_for_a_whole_one(port: int, rows: Rows, version: str) -> None:
    for _ in range(20):
        with asked(port, "torn", version) as line:
            answer = http.client.HTTPResponse(line)
            with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
                answer.begin()
                answer.read()
    assert rows.ended == 20


@pytest.mark.parametrize("path", ["never", "endless"])
def test_a_client_that_goes_away_ends_it(port: int, rows: Rows, path: str) -> None:
    with asked(port, path) as line:
        assert rows.begun.wait(30)
        if path == "endless":
            assert line.recv(10) == b"HTTP/1.1 2"
        assert not rows.ended
    eventually(lambda: rows.ended == 1)


def test_what_a_client_does_not_read_is_not_made(port: int, rows: Rows) -> None:
    with asked(port, "endless") as line:
        taken = 0
        while taken < 20_000_000:
            taken += len(line.recv(1_000_000))
        assert rows.sent * len(CHUNK) - taken < 10_000_000  # what the buffers of both kernels hold
