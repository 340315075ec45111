"""What the source is told of how far we are: what it may forget, and, for status, what has come and what is staged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pipeline.capture.replication.idle_rule import IdleRule
from pipeline.capture.replication.stream import SENDER_TIMEOUT, ReplicationStream

TELL_SECONDS = 1.0
"""After which the source is told how far we are, if that has changed: `pipeline status` reads it there."""


class Feedback:
    """Tells what `idle` says is confirmed and staged. `received`: up to where keepalives say that all was sent."""

    def __init__(self, stream: ReplicationStream, idle: IdleRule, begun: Callable[[], int]) -> None:
        """`begun`: commit LSN of the last transaction that has begun to come."""
        self._stream, self._idle, self._begun = stream, idle, begun
        self._told: tuple[int, int, int] | None = None
        self._told_at = 0.0
        self.received = 0

    def confirm(self, position: int) -> None:
        """Everything before `position` is durable."""
        self._idle.confirm(position, time.monotonic())
        self.send()

    def send(self) -> None:
        """Say it now; never blocks."""
        self._told, self._told_at = self._now(), time.monotonic()
        self._stream.send_status(*self._told)

    async def keep_telling(self) -> None:
        """Keep the walsender from giving us up, whatever staging is waiting for, and say how far we are.

        Raises Unavailable when the source has not said a word for long.
        """
        while True:
            await asyncio.sleep(min(TELL_SECONDS, SENDER_TIMEOUT / 6))
            self._stream.require_alive()
            if self._told != self._now() or time.monotonic() - self._told_at >= SENDER_TIMEOUT / 6:
                self.send()

    def _now(self) -> tuple[int, int, int]:
        confirmed = self._idle.confirmed
        return max(self.received, self._begun(), confirmed), confirmed, self._idle.staged
