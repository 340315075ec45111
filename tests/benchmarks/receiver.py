"""One that receives events and notes when, in its own process.

python -m tests.benchmarks.receiver EVENTS SECONDS WARM_UP websocket URL | session URL | walstream ADDRESS |
pg_recvlogical COMMAND...: says "connected", and "warm" after WARM_UP of the events; when all have come, or the seconds
are over, prints "KEY MICROSECONDS COMMITTED" of each: when it had come, and when the source says that it was committed,
0 where that is not known.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import subprocess
import sys
import time
from datetime import datetime

import grpc
import orjson
from websockets.asyncio.client import ClientConnection, connect

from tests.benchmarks import rpc_client

_INSERTED = re.compile(rb"I.{4}N\x00\x08t\x00{3}[\x01-\x13](\d{1,19})t", re.DOTALL)
"""pgoutput's Insert of a row of eight columns, up to the first, which is text."""
_LONGEST = 64


class Seen:
    """What has come: by key, when, and when it was committed."""

    def __init__(self, wanted: int, warm_up: int) -> None:
        self._wanted = wanted
        self._warm_up = warm_up
        self.events: dict[int, tuple[int, int]] = {}

    def note(self, key: int, now: int, committed: int) -> None:
        """One event; all are in microseconds."""
        self.events[key] = now, committed
        if len(self.events) == self._warm_up:
            print("warm", flush=True)

    @property
    def whole(self) -> bool:
        """Whether all have come."""
        return len(self.events) >= self._wanted


def main(arguments: list[str]) -> None:
    seconds, how = float(arguments[1]), arguments[3]
    seen = Seen(int(arguments[0]), int(arguments[2]))
    if how == "websocket":
        asyncio.run(_websocket(arguments[4], seconds, seen))
    elif how == "walstream":
        asyncio.run(_walstream(arguments[4], seconds, seen))
    elif how == "session":
        asyncio.run(_session(arguments[4], seconds, seen))
    else:
        _pg_recvlogical(arguments[4:], seconds, seen)
    sys.stdout.writelines(f"{key} {at} {committed}\n" for key, (at, committed) in seen.events.items())


async def _websocket(url: str, seconds: float, seen: Seen) -> None:
    """Read and acknowledge, as an application would."""
    try:
        async with asyncio.timeout(seconds), connect(url, compression=None, max_size=None) as stream:
            await stream.recv()
            print("connected", flush=True)
            while not seen.whole:
                await _take(stream, seen)
    except TimeoutError:
        pass  # who reads our lines counts them


async def _take(stream: ClientConnection, seen: Seen) -> None:
    text = await stream.recv()
    now = time.time_ns() // 1000
    data = orjson.loads(text).get("data")
    if not data:
        return
    for event in data:
        committed = datetime.fromisoformat(event["committed_at"])
        seen.note(int(event["record_pk"]), now, round(committed.timestamp() * 1e6))
    await stream.send(f'{{"ack":{data[-1]["seq"]}}}')


async def _session(url: str, seconds: float, seen: Seen) -> None:
    """A client of PG Delta Stream that acknowledges each frame."""
    try:
        async with asyncio.timeout(seconds), connect(url, compression=None, max_size=None) as stream:
            print("connected", flush=True)
            while not seen.whole:
                text = await stream.recv()
                now = time.time_ns() // 1000
                frame = orjson.loads(text)
                for change in frame["change"]:
                    seen.note(change["columnvalues"][0], now, 0)
                await stream.send(f'{{"lsn":"{frame["nextlsn"]}"}}')
    except TimeoutError:
        pass  # who reads our lines counts them


async def _walstream(address: str, seconds: float, seen: Seen) -> None:
    """A client of walstream that acknowledges each event."""
    acks = asyncio.Queue[int]()
    try:
        async with asyncio.timeout(seconds), grpc.aio.insecure_channel(address) as channel:
            call = rpc_client.session(channel, acks)
            await call.wait_for_connection()
            await call.initial_metadata()
            print("connected", flush=True)
            while not seen.whole:
                message = await call.read()
                now = time.time_ns() // 1000
                seen.note(int(orjson.loads(message.insert.json_payload)["id"]), now, 0)
                acks.put_nowait(message.insert.pg_lsn)
    except TimeoutError:
        pass  # who reads our lines counts them


def _pg_recvlogical(command: list[str], seconds: float, seen: Seen) -> None:
    deadline = time.monotonic() + seconds
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    output, rest = process.stdout.fileno(), b""
    print("connected", flush=True)
    while not seen.whole and select.select([output], [], [], max(0.0, deadline - time.monotonic()))[0]:
        more = os.read(output, 1 << 16)
        now = time.time_ns() // 1000
        if not more:
            break
        rest += more
        end = 0
        for found in _INSERTED.finditer(rest):
            seen.note(int(found[1]), now, 0)
            end = found.end()
        rest = rest[max(end, len(rest) - _LONGEST) :]
    process.kill()
    process.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
