"""Many WebSocket clients in its own process; each acknowledges, and looks at the order.

python -m tests.benchmarks.crowd EVENTS SECONDS URL...: says "connected" when all are; when each has got EVENTS, or the
seconds are over, says "client EVENTS IN_ORDER SECONDS" of each: the seconds from its first frame to its last.
They stay connected until the program is ended. With EVENTS 0 they wait for nothing.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from itertools import pairwise

from websockets.asyncio.client import ClientConnection, connect

ACKNOWLEDGE_SECONDS = 0.1
"""Seconds between two reports, at least."""
AT_ONCE = 20
"""Clients that connect at the same time."""
_SEQ = re.compile(r'[\[,]\{"seq":(\d+),')
"""Where an event begins: a client that has to share two cores with the server does not parse all of it."""


class Client:
    """One stream: how many events came, and whether each came after the one before."""

    def __init__(self, url: str, wanted: int) -> None:
        self.url = url
        self.events = 0
        self.in_order = True
        self.seconds = 0.0
        self._wanted = wanted
        self._last = 0
        self._first_at = 0.0
        self._acknowledged_at = 0.0

    async def connect(self, turn: asyncio.Semaphore) -> ClientConnection:
        """Connected, and told where it begins."""
        async with turn:
            stream = await connect(self.url, compression=None, max_size=None, open_timeout=60)
            await stream.recv()
            return stream

    async def read(self, stream: ClientConnection) -> None:
        """Until it has what is wanted; forever when that is nothing."""
        while not self._wanted or self.events < self._wanted:
            text = await stream.recv()
            assert isinstance(text, str)
            if seqs := [int(seq) for seq in _SEQ.findall(text)]:
                self._take(seqs)
                await self._acknowledge(stream)

    async def _acknowledge(self, stream: ClientConnection) -> None:
        now = time.monotonic()
        if now >= self._acknowledged_at + ACKNOWLEDGE_SECONDS:
            self._acknowledged_at = now
            await stream.send(f'{{"ack":{self._last}}}')

    def _take(self, seqs: list[int]) -> None:
        self._first_at = self._first_at or time.monotonic()
        self.seconds = time.monotonic() - self._first_at
        self.in_order &= all(before < after for before, after in pairwise([self._last, *seqs]))
        self._last = seqs[-1]
        self.events += len(seqs)


async def main(events: int, seconds: float, urls: list[str]) -> None:
    clients = [Client(url, events) for url in urls]
    turn = asyncio.Semaphore(AT_ONCE)
    streams = await asyncio.gather(*(client.connect(turn) for client in clients))
    print("connected", flush=True)
    reading = [asyncio.create_task(client.read(stream)) for client, stream in zip(clients, streams, strict=True)]
    try:
        async with asyncio.timeout(seconds):
            await asyncio.gather(*reading)
    except TimeoutError:
        pass  # who reads our lines counts
    for client in clients:
        print("client", client.events, client.in_order, f"{client.seconds:.6f}", flush=True)
    await asyncio.gather(*(stream.wait_closed() for stream in streams))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
