"""Measures how short CPU cores are: the time that this process was ready to run but waited for a core."""

from __future__ import annotations

import time
from pathlib import Path

SCHEDSTAT = Path("/proc/self/schedstat")
FREE, SHORT = 0.4, 0.8
"""Limits of the share of its runnable time that a process waits for a core.

Below the first one, cores are free; above the second one, they are short.
"""
LOOK_EVERY = 0.25
"""Seconds between two measurements."""


class RunDelay:
    """The scheduler's figures of this process's main thread; 0 if the kernel has no such file."""

    def __init__(self, file: Path = SCHEDSTAT) -> None:
        self._file = file
        self._before = self._read()

    def share(self) -> float:
        """Return the share, 0 to 1, of the runnable time since the last call in which the thread waited for a core."""
        before, self._before = self._before, self._read()
        ran, waited = (new - old for new, old in zip(self._before, before, strict=True))
        return waited / (ran + waited) if ran + waited > 0 else 0.0

    def _read(self) -> tuple[int, int]:
        """Return the nanoseconds run on a core, and waited for one (kernel documentation, "Scheduler Statistics")."""
        try:
            ran, waited, _ = self._file.read_text().split()
        except (OSError, ValueError):
            return 0, 0
        return int(ran), int(waited)


class ShortCores:
    """The shortage of cores: from 0 (cores are free) to 1 (this process mostly waits for a core)."""

    def __init__(self, delay: RunDelay | None = None, *, free: float = FREE, short: float = SHORT) -> None:
        self._delay = delay or RunDelay()
        self._free, self._short = free, short
        self._degree = self._look_at = 0.0

    def degree(self) -> float:
        """Return the shortage, 0 to 1.

        Measures at most every LOOK_EVERY, and moves half of the way to each new value.
        """
        if (now := time.monotonic()) >= self._look_at:
            self._look_at = now + LOOK_EVERY
            seen = min(1.0, max(0.0, (self._delay.share() - self._free) / (self._short - self._free)))
            self._degree = (self._degree + seen) / 2
        return self._degree
