"""A process of hostile clients, which ends by itself: `python -m tests.torture.hostile_clients.flood '{"clients": …}'`.

It prints as JSON how many requests of each kind were sent, what came back, and the processor time that it took.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from tests.torture.hostile_clients.requests import HostileKind, kinds

_PAUSE = 1.0
"""Seconds from one request of a client to its next."""


class HostileClient(asyncio.Protocol):
    """A client with one connection at a time."""

    def __init__(self, kind: HostileKind, port: int, counts: Counter[str]) -> None:
        self._kind, self._port, self._counts = kind, port, counts
        self._name = f"{kind.name} ({'gRPC' if kind.grpc else 'HTTP'})"
        self._transport: asyncio.Transport | None = None
        self._ended = asyncio.Event()
        self._has_answer = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Send what comes first."""
        self._transport = transport
        transport.write(self._kind.first)

    def data_received(self, data: bytes) -> None:
        """Count answers of HTTP by their status, and others as such."""
        self._has_answer = True
        says = data[9:12].decode() if data.startswith(b"HTTP/1.1 ") else ("data" if self._kind.grpc else "more")
        self._counts[f"{self._name}: {says}"] += 1

    def connection_lost(self, exc: Exception | None) -> None:
        """The server has ended the connection, or this client has."""
        self._ended.set()

    async def run(self, offset: float) -> None:
        """Connect and send, again and again."""
        await asyncio.sleep(offset)
        while True:
            self._ended.clear()
            self._counts[f"{self._name}: connections"] += 1
            try:
                await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._port)
                await self._use()
            except OSError:
                self._counts[f"{self._name}: not connected"] += 1
            await asyncio.sleep(_PAUSE)

    async def _use(self) -> None:
        assert self._transport is not None
        at, self._has_answer = 0, True
        while not self._ended.is_set() and not (self._kind.leaves and at):
            later = self._kind.later
            if self._kind.repeats and self._has_answer:
                self._has_answer = False
                self._transport.write(later)
            elif not self._kind.repeats:
                self._transport.write(later[at : at + 1])
            at += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _PAUSE if later or self._kind.leaves else None)
        self._transport.abort()


async def _flood(given: dict[str, Any], counts: Counter[str]) -> None:
    every, number = kinds(given["token"]), given["clients"]
    clients = [
        HostileClient(kind, given["grpc_port" if kind.grpc else "http_port"], counts)
        for kind in (every[index % len(every)] for index in range(number))
    ]
    with suppress(TimeoutError):
        async with asyncio.timeout(given["seconds"]):
            await asyncio.gather(*(client.run(_PAUSE * index / number) for index, client in enumerate(clients)))


def main() -> None:
    """Run all clients for this long."""
    counts, began = Counter[str](), time.monotonic()
    asyncio.run(_flood(json.loads(sys.argv[1]), counts))
    used = resource.getrusage(resource.RUSAGE_SELF)
    took = time.monotonic() - began
    print(json.dumps({"counts": counts, "processor_share": (used.ru_utime + used.ru_stime) / took}))


if __name__ == "__main__":
    main()
