"""Clients that acknowledge each event, some, none, late, twice or wrongly; die, freeze and read slowly."""

from __future__ import annotations

import json
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import grpc

from pipeline.rpc.protos import plugin_pb2 as pb
from tests.torture.walstream.model import Given, Log, wrong_with_next

KINDS = ("each", "some", "none", "late", "twice", "wrongly", "slow", "freezes")
CONNECT_AGAIN_SECONDS = 0.3


class Client(threading.Thread):
    """One client: a session after the other, until `stopped`; it dies now and then."""

    def __init__(
        self,
        address: str,
        kind: str,
        log: Log,
        begin: Callable[[str], Given],
        wrong: Callable[[str], None],
        seed: int,
        hold: float,
        life: float,
    ) -> None:
        """`life`: its sessions live for this many seconds at most."""
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self.kind = kind
        self.current: Given | None = None
        self._address, self._log, self._begin, self._wrong = address, log, begin, wrong
        self._random, self._hold, self._life = random.Random(seed), hold, life
        self._late: list[int] = []

    def run(self) -> None:
        while not self.stopped.is_set():
            with grpc.insecure_channel(self._address) as channel, suppress(grpc.RpcError):
                self._session(channel)
            self.stopped.wait(CONNECT_AGAIN_SECONDS * self._random.random())

    def _session(self, channel: grpc.Channel) -> None:
        acks: queue.Queue[int | None] = queue.Queue()
        given = self.current = self._begin(self.kind)
        call: Any = channel.stream_stream(
            "/plugin.PluginService/Session", pb.ClientMessage.SerializeToString, pb.ServerMessage.FromString
        )(_requests(acks))
        until = time.monotonic() + (self._random.uniform(0.3, self._life) if self._life < 1e6 else self._life)
        threading.Thread(target=self._end_at, args=(until, given, call), daemon=True).start()
        try:
            for message in call:
                self._take(given, message, acks)
        finally:
            given.ended_at = given.ended_at or time.monotonic()
            acks.put(None)
            call.cancel()

    def _end_at(self, until: float, given: Given, call: Any) -> None:
        """It dies, whatever it is doing; the server learns of that now, and not once a frozen one looks up."""
        while time.monotonic() < until and not self.stopped.is_set():
            time.sleep(0.05)
        given.ended_at = given.ended_at or time.monotonic()
        call.cancel()

    def _take(self, given: Given, message: pb.ServerMessage, acks: queue.Queue[int | None]) -> None:
        event = message.insert
        number = json.loads(event.json_payload)["n"]
        for what in wrong_with_next(self._log, given, number, self._hold):
            self._wrong(what)
        if self._log.events[number].lsn != event.pg_lsn:
            self._wrong(f"event {number} has pg_lsn {event.pg_lsn}, not {self._log.events[number].lsn}")
        given.receive(self._log, number)
        self._pause()
        for lsn in self._acknowledges(event.pg_lsn):
            given.acknowledge(self._log, lsn)
            acks.put(lsn)

    def _pause(self) -> None:
        if self.kind == "slow":
            time.sleep(0.01)
        if self.kind == "freezes" and self._random.random() < 0.01:
            time.sleep(self._random.uniform(0.2, 1.5))

    def _acknowledges(self, lsn: int) -> list[int]:
        match self.kind:
            case "none":
                return []
            case "some":
                return [lsn] * (self._random.random() < 0.3)
            case "late":
                self._late.append(lsn)
                if len(self._late) < self._random.randrange(1, 60):
                    return []
                late, self._late = self._late, []
                return late
            case "wrongly":
                return [lsn + self._random.choice([-3, -1, 1, 2**40])] * (self._random.random() < 0.3) + [lsn]
            case "twice":
                return [lsn, lsn]
        return [lsn]


def _requests(acks: queue.Queue[int | None]) -> Iterator[pb.ClientMessage]:
    while (lsn := acks.get()) is not None:
        yield pb.ClientMessage(ack=pb.ClientAck(pg_lsn=max(0, lsn)))
