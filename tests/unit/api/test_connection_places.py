"""Places of connections: a request that gives way takes no place of a complete one while it is answered."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from pipeline.api import access_guard, connection_places, http_protocol
from pipeline.api.http_protocol import LimitedHttp
from pipeline.api.problems import answer
from pipeline.api.wire import ErrorAnswer

HALF = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nhalf"


def test_a_displaced_request_leaves_its_place_to_a_complete_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "MAX_CONNECTIONS", 3)  # two for complete requests
    monkeypatch.setattr(connection_places, "ARRIVAL_SECONDS", 60)

    async def run() -> None:
        begun, made = asyncio.Semaphore(0), list[LimitedHttp]()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            http_protocol.connection_of(scope).admit(has_token=False)
            begun.release()
            found = await access_guard.read_body(scope, receive, has_token=False)
            if isinstance(found, ErrorAnswer):
                await answer(None, found)(scope, receive, send)

        config, state, kind = (
            uvicorn.Config(app, log_config=None, lifespan="off"),
            ServerState(),
            http_protocol.limited(),
        )
        config.load()

        def protocol() -> asyncio.Protocol:
            made.append(kind(config=config, server_state=state, app_state={}))
            return made[-1]

        loop, connections = asyncio.get_running_loop(), cast(set[object], state.connections)
        async with await loop.create_server(protocol, "127.0.0.1", 0) as server:
            address = server.sockets[0].getsockname()
            with socket.create_connection(address) as first, socket.create_connection(address) as second:
                for line in (first, second):
                    line.sendall(HALF)
                    await begun.acquire()
                complete = object(), object()
                assert kind.places.has_room({*connections, *complete})
                made[0].yield_place()
                assert made[0].is_displaced
                assert kind.places.has_room({*connections, *complete})
                assert (connections, made[1].is_displaced) == ({made[1]}, False)
                made[1].transport.abort()

    asyncio.run(run())
