"""One `send` of many texts: each is a message, whatever its length, and nothing is kept for who does not read."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.utils import ClientDisconnected
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from pipeline.api import websocket_protocol
from pipeline.api.websocket_protocol import PIECE_BYTES
from tests.fixtures.postgres import free_port
from tests.fixtures.waiting import eventually

LENGTHS = (0, 1, 125, 126, 65_535, 65_536, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES, 3)


class Sender:
    """An application that sends the same lists of texts to each client; `sent` counts those that have gone."""

    def __init__(self, lists: Sequence[Sequence[bytes]]) -> None:
        self.lists = lists
        self.sent = 0
        self.error: BaseException | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":
            return
        await receive()
        await send({"type": "websocket.accept"})
        try:
            for texts in self.lists:
                await send({"type": "websocket.send", "texts": texts})
                self.sent += 1
            await send({"type": "websocket.close"})
        except BaseException as error:
            self.error = error
            raise


@contextmanager
def serving(sender: Sender) -> Iterator[str]:
    """The address of a server with that application."""
    port = free_port()
    config = uvicorn.Config(
        sender, port=port, lifespan="off", log_config=None, timeout_graceful_shutdown=5, **websocket_protocol.SETTINGS
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    eventually(lambda: server.started)
    try:
        yield f"ws://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join()


def client(address: str) -> ClientConnection:
    """Without its own pings: their thread outlives a socket that is cut off, and complains during another test."""
    return connect(address, max_size=None, compression=None, proxy=None, ping_interval=None)


def test_each_is_a_message() -> None:
    texts = [bytes(97 + i % 26 for i in range(length)) for length in LENGTHS]
    with serving(Sender([texts, [], texts[:3]])) as address, client(address) as line:
        received = list(line)
    assert [message.encode() for message in received if isinstance(message, str)] == [*texts, *texts[:3]]


def test_pings_inside_of_a_long_one_do_not_spoil_it() -> None:
    with serving(Sender([[b"x" * (40 * PIECE_BYTES)]])) as address, client(address) as line:
        pieces = []
        for piece in line.recv_streaming():
            pieces.append(piece)
            with suppress(ConnectionClosed):  # that was the last one
                line.ping()
        assert "".join(str(piece) for piece in pieces) == "x" * (40 * PIECE_BYTES)


@pytest.mark.parametrize("texts", [[b"x" * 500] * 2000, [b"x" * (8 * PIECE_BYTES)]], ids=["many", "long"])
def test_who_does_not_read_is_waited_for_and_one_that_leaves_is_not(texts: list[bytes]) -> None:
    sender = Sender([texts] * 40)
    with serving(sender) as address:
        line = client(address)
        eventually(lambda: sender.sent > 0 or len(texts) == 1)
        seen = -1
        while seen != sender.sent:
            seen = sender.sent
            threading.Event().wait(0.2)
        assert sender.sent < 30
        line.socket.shutdown(socket.SHUT_RDWR)  # or a thread of the client that waits for more would keep it open
        line.socket.close()
        eventually(lambda: isinstance(sender.error, ClientDisconnected))
