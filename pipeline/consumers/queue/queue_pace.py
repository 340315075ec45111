"""Decides when queues of records consumers are filled, and for how long: the log has priority, but not forever."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from pipeline.consumers.queue.queue_apply import CatchUpResult
from pipeline.process.run_delay import ShortCores

SHARE = 0.12
"""The share of the time for lagging queues, while there is something to move, or the log lags and cores are short."""
LATE_SHARE, LATE_AFTER = 0.5, 300.0
"""The share after pauses of this many seconds in total, until the queues have caught up."""
LONGEST_PAUSE = 5.0
"""The most seconds between two turns, however long a turn takes."""
BUSY_TURN, IDLE_TURN = 0.03, 0.1
"""Seconds of a turn, while there is something to move, and while there is not."""
CHECK_EVERY = 0.1
"""Seconds between two queries for consumers, while there is something to move and no queue lags."""
FREE, SHORT = 0.5, 0.9
"""Cores are free if this process waits for a core in less than this share of the time in which it could run, and short
from the second share on. The process mostly waits for answers, so it loses its core more often than a busy one."""
LAG_BYTES = 4_000_000
"""The log lags if the source is more than this number of bytes of WAL ahead, about a quarter of a second of work."""
LAG_EVERY = 0.25
"""Seconds between two measurements of the log's lag."""


class QueueTurn(NamedTuple):
    """Time for queues. No chunk begins after `within` seconds; for `free` seconds there is nothing else to do."""

    began: float
    within: float
    free: float
    is_busy: bool


class QueuePace:
    """Gives queues their turns. If cores are free or the log does not lag, queues wait only while events are moved.

    `lag`: returns by how many bytes of WAL the source is ahead of the log.
    """

    def __init__(self, lag: Callable[[], int], cores: ShortCores | None = None) -> None:
        self._lag = lag
        self._cores = cores or ShortCores(free=FREE, short=SHORT)
        self._priority = self._measure_at = self._next_at = self._paused = 0.0
        self._last = CatchUpResult.NOTHING

    def begin_turn(self, left: float | None, *, has_queues: bool) -> QueueTurn | None:
        """Return a turn that begins now, or None if it is too early; the caller must call `end_turn` after it.

        `left`: seconds until the next move; None if there is nothing to move. `has_queues`: there are consumers.
        """
        now, priority = time.monotonic(), self._log_priority()
        is_busy, is_due = left is not None, now >= self._next_at
        free = (left or 0.0) * (1 - priority)
        if is_due or not (is_busy or priority):
            return QueueTurn(now, max(free, BUSY_TURN) if is_busy else IDLE_TURN, free, is_busy)
        if free > 0 and has_queues:
            return QueueTurn(now, free, free, is_busy)
        return None

    def end_turn(self, turn: QueueTurn, result: CatchUpResult, *, did_other: bool = False) -> None:
        """Record the result of the turn, and set when the next one begins. `did_other`: there may be more to do."""
        now, self._last = time.monotonic(), result
        if result is not CatchUpResult.LAGGING:
            self._paused = 0.0
        share = SHARE if self._paused < LATE_AFTER else LATE_SHARE
        over = max(0.0, now - turn.began - turn.free) * (1 if turn.is_busy else self._log_priority())
        pause = min(LONGEST_PAUSE, over * (1 / share - 1))
        self._paused += pause
        least = 0.0 if result or did_other or not turn.is_busy else CHECK_EVERY
        self._next_at = max(self._next_at, now + max(pause, least))

    @property
    def rest(self) -> float | None:
        """Seconds until the next turn if queues wait for the log to catch up; None if they do not."""
        return max(0.0, self._next_at - time.monotonic()) if self._priority else None

    def _log_priority(self) -> float:
        """Return how much queues wait for a log that lags, from 0 to 1, while there is nothing to move."""
        if (now := time.monotonic()) >= self._measure_at:
            self._measure_at = now + LAG_EVERY
            degree = self._cores.degree()
            lags = degree > 0 and self._last is not CatchUpResult.NOTHING and self._lag() > LAG_BYTES
            self._priority = degree if lags else 0.0
        return self._priority
