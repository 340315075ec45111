"""How far apart the worker's commits are: where cores are short, further, so that more transactions share one."""

from __future__ import annotations

from pipeline.capture.replication.confirm_rule import PACE
from pipeline.process.run_delay import ShortCores

BUSY_PACE = 0.012
"""At least so many seconds between two commits under load, so that small transactions share one; else PACE."""
BUSY_ROWS = 100
"""A batch of so many rows or more counts as load."""
LONGEST = 0.03
"""And where this process mostly waits for a core. A transaction's own share of a commit is then a third of what it is
at PACE; nobody's events come later by more than this."""


class CommitPace:
    """What lies between two commits at least. Without `stretches` it is the same whatever else the cores do."""

    def __init__(self, cores: ShortCores | None = None) -> None:
        self._cores = cores or ShortCores()

    def after(self, rows: int, *, stretches: bool) -> float:
        """Seconds from the beginning of a commit of so many rows to that of the next one."""
        pace = PACE if rows < BUSY_ROWS else BUSY_PACE
        if not stretches:
            return pace
        return pace + (LONGEST - pace) * self._cores.degree()
