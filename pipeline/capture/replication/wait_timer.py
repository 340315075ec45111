"""Adds up how long something has waited."""

from __future__ import annotations

import time
from types import TracebackType


class WaitTimer:
    """Adds up the time inside of its `with` blocks, which must not overlap."""

    def __init__(self) -> None:
        self._before = 0.0
        self._since: float | None = None

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._before, self._since = self.seconds, None

    @property
    def now(self) -> float:
        """Seconds in the current block; 0 outside of one."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    @property
    def seconds(self) -> float:
        """Seconds in total, the current block included."""
        return self._before + self.now
