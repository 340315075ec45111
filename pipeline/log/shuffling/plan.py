"""Plan which staged rows to move next, as a run of whole transactions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.log.staging.segments import Segment

RUN_ROWS = 50_000
"""Rows from which on a run takes no further segment, unless a transaction would be cut."""


@dataclass(frozen=True)
class ShuffleRun:
    """A run moves the rows with `after` < commit_lsn <= `upto` of `segments`, in this order, and drains `drained`."""

    segments: tuple[Segment, ...]
    after: int
    upto: int
    drained: tuple[int, ...]

    @property
    def rows(self) -> int:
        """An upper bound for the number of its rows."""
        return sum(segment.row_count for segment in self.segments)


def next_run(pending: Sequence[Segment], watermark: int, complete: int, limit: int = RUN_ROWS) -> ShuffleRun | None:
    """Return a run of the next whole transactions; None if there is nothing to do.

    `pending` is in order of LSN; `watermark` is the last commit_lsn moved, `complete` the last one staged.
    A transaction that spans segments is never cut: the run grows until it ends.
    """
    chosen: list[Segment] = []
    rows = 0
    for segment in pending:
        if segment.first_lsn > complete:
            break
        if rows >= limit and segment.first_lsn > chosen[-1].last_lsn:
            break
        chosen.append(segment)
        rows += segment.row_count
    if not chosen:
        return None
    upto = min(complete, chosen[-1].last_lsn)
    drained = tuple(segment.id for segment in chosen if segment.full and segment.last_lsn <= upto)
    moving = tuple(segment for segment in chosen if segment.last_lsn > watermark)
    if upto <= watermark and not drained:
        return None
    return ShuffleRun(moving if upto > watermark else (), watermark, max(upto, watermark), drained)
