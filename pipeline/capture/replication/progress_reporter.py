"""Progress reports to the source: the WAL that it may remove, and, for `pipeline status`, what has arrived and is
staged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pipeline.capture.replication.confirm_rule import ConfirmRule
from pipeline.capture.replication.stream import SENDER_TIMEOUT, ReplicationStream

REPORT_SECONDS = 1.0
"""Seconds between reports of changed progress, which `pipeline status` reads at the source."""


class ProgressReporter:
    """Reports what is confirmed and staged, according to `confirm_rule`.

    `received`: by the last keepalives, the source has sent everything before this LSN.
    """

    def __init__(self, stream: ReplicationStream, confirm_rule: ConfirmRule, begun: Callable[[], int]) -> None:
        """`begun` returns the commit LSN of the last transaction that has begun to arrive."""
        self._stream, self._confirm_rule, self._begun = stream, confirm_rule, begun
        self._reported: tuple[int, int, int] | None = None
        self._reported_at = 0.0
        self.received = 0

    def confirm(self, position: int) -> None:
        """Note that everything before `position` is durable, and report it."""
        self._confirm_rule.confirm(position, time.monotonic())
        self.send()

    def send(self) -> None:
        """Send a report now; never blocks."""
        self._reported, self._reported_at = self._now(), time.monotonic()
        self._stream.send_status(*self._reported)

    async def keep_reporting(self) -> None:
        """Report progress, and keep the walsender from timing out, also while staging waits.

        Raises DatabaseUnavailableError if the source has been silent for too long.
        """
        while True:
            await asyncio.sleep(min(REPORT_SECONDS, SENDER_TIMEOUT / 6))
            self._stream.require_alive()
            if self._reported != self._now() or time.monotonic() - self._reported_at >= SENDER_TIMEOUT / 6:
                self.send()

    def _now(self) -> tuple[int, int, int]:
        confirmed = self._confirm_rule.confirmed
        return max(self.received, self._begun(), confirmed), confirmed, self._confirm_rule.staged
