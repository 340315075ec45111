"""A server that serves the wire of PG Delta Stream, and sessions at it."""

from __future__ import annotations

import time

import httpx

from tests.benchmarks import api
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.server import START_TIMEOUT, PipelineServer

SETTINGS = {"PIPELINE_WIRES": "pgdeltastream", "PIPELINE_SESSIONS_MAX": "8", "PIPELINE_SNAPSHOT": "never"}


def init(server: PipelineServer) -> str:
    """A new session's slot, as soon as the server gives one. Raises BenchmarkFailed."""
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        server.require_alive()
        try:
            answer = httpx.get(f"{api.address(server)}/v1/init", timeout=START_TIMEOUT)
            if answer.status_code == 200:
                return str(answer.json()["slotName"])
            said = f"{answer.status_code} {answer.text[:200]}"
        except httpx.HTTPError as error:
            said = str(error)
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"no session: {said}; {server.log_tail()}")
        time.sleep(0.1)


def url(server: PipelineServer, slot: str) -> str:
    """The WebSocket of a session."""
    return f"ws://127.0.0.1:{server.http_port}/v1/lr/stream?slotName={slot}"
