"""The HTTP API of the server under measurement."""

from __future__ import annotations

import time
from typing import Any

import httpx

from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.server import START_TIMEOUT, PipelineServer


def create_consumer(server: PipelineServer, name: str, kind: str, **settings: Any) -> None:
    """POST /v1/consumers, as soon as the server answers. Raises BenchmarkFailed."""
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        server.require_alive()
        try:
            answer = httpx.post(f"{address(server)}/v1/consumers", json={"name": name, "kind": kind, **settings})
            if answer.status_code == 201:
                return
            said = f"{answer.status_code} {answer.text[:200]}"
        except httpx.HTTPError as error:
            said = str(error)
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"consumer {name} cannot be created: {said}; {server.log_tail()}")
        time.sleep(0.05)


def address(server: PipelineServer) -> str:
    """Of the API, without a slash at the end."""
    return f"http://127.0.0.1:{server.http_port}"


def stream(server: PipelineServer, consumer: str, mode: str = "events") -> str:
    """The WebSocket of a cursor."""
    return f"ws://127.0.0.1:{server.http_port}/v1/consumers/{consumer}/stream?mode={mode}"
