"""How far apart the worker's commits are: where cores are short, further, so that more transactions share one."""

from __future__ import annotations

import time

from pipeline.capture.replication.confirm_rule import PACE
from pipeline.process.run_delay import RunDelay

BUSY_PACE = 0.012
"""At least so many seconds between two commits under load, so that small transactions share one; else PACE."""
BUSY_ROWS = 100
"""A batch of so many rows or more counts as load."""
LONGEST = 0.03
"""And where this process mostly waits for a core. A transaction's own share of a commit is then a third of what it is
at PACE; nobody's events come later by more than this."""
FREE, SHORT = 0.4, 0.8
"""Cores are free while it waits for less than this share of the time in which it could run, and short from that on."""
LOOK_EVERY = 0.25
"""Seconds between two looks at that."""


class CommitPace:
    """What lies between two commits at least. Without `stretches` it is the same whatever else the cores do."""

    def __init__(self, delay: RunDelay | None = None) -> None:
        self._delay = delay or RunDelay()
        self._shortness = 0.0
        self._look_at = 0.0

    def after(self, rows: int, *, stretches: bool) -> float:
        """Seconds from the beginning of a commit of so many rows to that of the next one."""
        pace = PACE if rows < BUSY_ROWS else BUSY_PACE
        if not stretches:
            return pace
        if (now := time.monotonic()) >= self._look_at:
            self._look_at = now + LOOK_EVERY
            wanted = min(1.0, max(0.0, (self._delay.share() - FREE) / (SHORT - FREE)))
            self._shortness = (self._shortness + wanted) / 2  # one look says little
        return pace + (LONGEST - pace) * self._shortness
