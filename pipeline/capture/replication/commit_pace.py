"""Decides how far apart the worker's commits are. If cores are short, more transactions share a commit."""

from __future__ import annotations

from pipeline.capture.replication.confirm_rule import PACE
from pipeline.process.run_delay import ShortCores

BUSY_PACE = 0.012
"""The least seconds between two commits under load, so that small transactions share one; without load, PACE."""
BUSY_ROWS = 100
"""The rows from which a batch counts as load."""
LONGEST = 0.03
"""Seconds between two commits if this process mostly waits for a core.

A transaction's share of a commit then costs a third of what it costs at PACE. No event is delayed by more than this.
"""


class CommitPace:
    """Sets the time between two commits."""

    def __init__(self, cores: ShortCores | None = None) -> None:
        self._cores = cores or ShortCores()

    def after(self, rows: int, *, stretches: bool) -> float:
        """Return the seconds from the start of a commit of `rows` rows to the start of the next commit.

        With `stretches`, they grow if cores are short.
        """
        pace = PACE if rows < BUSY_ROWS else BUSY_PACE
        if not stretches:
            return pace
        return pace + (LONGEST - pace) * self._cores.degree()
