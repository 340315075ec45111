"""Progress reports to the source: what it may forget, and, for `pipeline status`, what has arrived and is staged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pipeline.capture.replication.confirm_rule import ConfirmRule
from pipeline.capture.replication.stream import SENDER_TIMEOUT, ReplicationStream

REPORT_SECONDS = 1.0
"""Seconds between reports of progress, if it has changed: `pipeline status` reads it at the source."""


class ProgressReporter:
    """Reports what is confirmed and staged, as `confirm_rule` says. `received`: keepalives say that all before it was sent."""

    def __init__(self, stream: ReplicationStream, confirm_rule: ConfirmRule, begun: Callable[[], int]) -> None:
        """`begun`: commit LSN of the last transaction that has begun to arrive."""
        self._stream, self._confirm_rule, self._begun = stream, confirm_rule, begun
        self._reported: tuple[int, int, int] | None = None
        self._reported_at = 0.0
        self.received = 0

    def confirm(self, position: int) -> None:
        """Everything before `position` is durable."""
        self._confirm_rule.confirm(position, time.monotonic())
        self.send()

    def send(self) -> None:
        """Report now; never blocks."""
        self._reported, self._reported_at = self._now(), time.monotonic()
        self._stream.send_status(*self._reported)

    async def keep_reporting(self) -> None:
        """Report progress, and keep the walsender from timing out, also while staging waits.

        Raises DatabaseUnavailableError when the source has been silent for too long.
        """
        while True:
            await asyncio.sleep(min(REPORT_SECONDS, SENDER_TIMEOUT / 6))
            self._stream.require_alive()
            if self._reported != self._now() or time.monotonic() - self._reported_at >= SENDER_TIMEOUT / 6:
                self.send()

    def _now(self) -> tuple[int, int, int]:
        confirmed = self._confirm_rule.confirmed
        return max(self.received, self._begun(), confirmed), confirmed, self._confirm_rule.staged
