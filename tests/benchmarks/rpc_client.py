"""Clients over gRPC in its own process; each looks at the order.

python -m tests.benchmarks.rpc_client walstream ADDRESS EVENTS SECONDS [FILE]
                                      | event-log ADDRESS EVENTS SECONDS CONSUMER
says "connected", and when the events have come, or the seconds are over, "client EVENTS IN_ORDER SECONDS": the seconds
from the first event to the last. walstream's acknowledges each event, and writes the messages into FILE, each behind
its length. `mute ADDRESS` never acknowledges, `deaf ADDRESS` never reads; both stay until they are ended.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from pipeline.rpc.protos import event_log_pb2, plugin_pb2

UNLIMITED = [("grpc.max_receive_message_length", -1)]


class Counted:
    """What has come."""

    def __init__(self) -> None:
        self.events, self.in_order = 0, True
        self._last, self._first_at, self.seconds = -1, 0.0, 0.0

    def note(self, place: int, events: int = 1) -> None:
        """This many events, of which the last has this place."""
        self._first_at = self._first_at or time.monotonic()
        self.seconds = time.monotonic() - self._first_at
        self.in_order &= place >= self._last
        self._last = place
        self.events += events


async def walstream(address: str, events: int, seconds: float) -> list[bytes]:
    """As the examples of walstream do: each event is acknowledged by itself. The messages, serialized."""
    counted, acks = Counted(), asyncio.Queue[int]()
    kept: list[bytes] = []
    async with grpc.aio.insecure_channel(address, UNLIMITED) as channel:
        call = session(channel, acks)
        await call.initial_metadata()
        print("connected", flush=True)
        try:
            async with asyncio.timeout(seconds):
                while counted.events < events:
                    message = await call.read()
                    event = getattr(message, message.WhichOneof("msg"))
                    counted.note(event.pg_lsn)
                    acks.put_nowait(event.pg_lsn)
                    kept.append(message.SerializeToString())
        except TimeoutError:
            pass  # who reads our lines counts
        print("client", counted.events, counted.in_order, f"{counted.seconds:.6f}", flush=True)
        await asyncio.sleep(1)  # the last acknowledgements are on their way
    return kept


async def event_log(address: str, events: int, seconds: float, consumer: str) -> None:
    """Reads a consumer from its position on; acknowledges ten times a second."""
    counted = Counted()
    async with grpc.aio.insecure_channel(address, UNLIMITED) as channel:
        read: Any = channel.unary_stream(
            "/pipeline.v1.EventLog/Read",
            event_log_pb2.ReadRequest.SerializeToString,
            event_log_pb2.Transaction.FromString,
        )
        call = read(event_log_pb2.ReadRequest(consumer=consumer, follow=True))
        await call.initial_metadata()
        print("connected", flush=True)
        try:
            async with asyncio.timeout(seconds):
                while counted.events < events:
                    message = await call.read()
                    counted.note(message.position.seq, len(message.changes))
        except TimeoutError:
            pass  # who reads our lines counts
        print("client", counted.events, counted.in_order, f"{counted.seconds:.6f}", flush=True)


async def bystander(address: str, how: str) -> None:
    """One that never acknowledges, or never reads."""
    async with grpc.aio.insecure_channel(address, UNLIMITED) as channel:
        call = session(channel, asyncio.Queue())
        await call.initial_metadata()
        print("connected", flush=True)
        while True:
            await (call.read() if how == "mute" else asyncio.sleep(1))


def session(channel: grpc.aio.Channel, acks: asyncio.Queue[int]) -> Any:
    """The call of walstream's clients, which sends these acknowledgements."""

    async def requests() -> AsyncIterator[plugin_pb2.ClientMessage]:
        while True:
            yield plugin_pb2.ClientMessage(ack=plugin_pb2.ClientAck(pg_lsn=await acks.get()))

    call: Any = channel.stream_stream(
        "/plugin.PluginService/Session",
        plugin_pb2.ClientMessage.SerializeToString,
        plugin_pb2.ServerMessage.FromString,
    )
    return call(requests())


def main(how: str, address: str, *rest: str) -> None:
    if how == "walstream":
        messages = asyncio.run(walstream(address, int(rest[0]), float(rest[1])))
        for file in map(Path, rest[2:]):
            file.write_bytes(b"".join(len(each).to_bytes(4, "big") + each for each in messages))
    elif how == "event-log":
        asyncio.run(event_log(address, int(rest[0]), float(rest[1]), rest[2]))
    else:
        asyncio.run(bystander(address, how))


if __name__ == "__main__":
    main(*sys.argv[1:])
