"""When items of records consumers are made, and for how long: the log comes first, but not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from pipeline.consumers.queue.queue_apply import CatchUpResult
from pipeline.process.run_delay import ShortCores

SHARE = 0.12
"""Of the time, for lagging consumers while there is something to move, or the log lags and cores are short."""
LATE_SHARE, LATE_AFTER = 0.5, 300.0
"""And once that has made them wait for so many seconds, until they are at the head."""
LONGEST_PAUSE = 5.0
"""Seconds between two turns of theirs at most, however long one takes."""
BUSY, IDLE = 0.03, 0.1
"""Seconds of a turn, while there is something to move, and else."""
LOOK_EVERY = 0.1
"""Seconds between looks for consumers, while there is something to move and none lags."""
FREE, SHORT = 0.5, 0.9
"""Cores are free, and short, where this process waits for one for such a share of the time in which it could run. It
mostly waits for answers, so it is at the end of the line more often than one that always runs."""
LAG_BYTES = 4_000_000
"""The log lags when the source is so many bytes of WAL ahead of it, which takes it a quarter of a second."""
LAG_EVERY = 0.25
"""Seconds between two looks at that."""


class QueueTurn(NamedTuple):
    """Time for queues: after `within` seconds no other chunk is begun. `free`: so long nothing else is to be done."""

    began: float
    within: float
    free: float
    is_busy: bool


class QueuePace:
    """Gives queues their turns. Where cores are free, or the log does not lag, they wait for what is moved only.

    `lag`: bytes of WAL that the source is ahead of the log.
    """

    def __init__(self, lag: Callable[[], int], cores: ShortCores | None = None) -> None:
        self._lag = lag
        self._cores = cores or ShortCores(free=FREE, short=SHORT)
        self._yields = self._lag_at = self._next_at = self._waited = 0.0
        self._last = CatchUpResult.NOTHING

    def turn(self, left: float | None, *, known: bool) -> QueueTurn | None:
        """A turn that begins now, if it is time; `ended` is to be called at its end.

        `left`: seconds until more is moved; None when there is nothing to move. `known`: whether there are consumers.
        """
        now, yields = time.monotonic(), self._look()
        is_busy, is_due = left is not None, now >= self._next_at
        free = (left or 0.0) * (1 - yields)
        if is_due or not (is_busy or yields):
            return QueueTurn(now, max(free, BUSY) if is_busy else IDLE, free, is_busy)
        if free > 0 and known:
            return QueueTurn(now, free, free, is_busy)
        return None

    def ended(self, turn: QueueTurn, found: CatchUpResult, *, goes_on: bool = False) -> None:
        """The turn has ended with this. `goes_on`: there may be more all the same."""
        now, self._last = time.monotonic(), found
        if found is not CatchUpResult.LAGGING:
            self._waited = 0.0
        share = SHARE if self._waited < LATE_AFTER else LATE_SHARE
        over = max(0.0, now - turn.began - turn.free) * (1 if turn.is_busy else self._look())
        pause = min(LONGEST_PAUSE, over * (1 / share - 1))
        self._waited += pause
        least = 0.0 if found or goes_on or not turn.is_busy else LOOK_EVERY
        self._next_at = max(self._next_at, now + max(pause, least))

    @property
    def rest(self) -> float | None:
        """Seconds until the next turn where queues wait for the log to catch up; None where they do not."""
        return max(0.0, self._next_at - time.monotonic()) if self._yields else None

    def _look(self) -> float:
        """How much they give way while nothing is to be moved, from 0 to 1."""
        if (now := time.monotonic()) >= self._lag_at:
            self._lag_at = now + LAG_EVERY
            degree = self._cores.degree()
            lags = degree > 0 and self._last is not CatchUpResult.NOTHING and self._lag() > LAG_BYTES
            self._yields = degree if lags else 0.0
        return self._yields
