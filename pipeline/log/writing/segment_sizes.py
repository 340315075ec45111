"""How large the tables are that a backlog is written to, and when one begins and ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass

SMALLEST, LARGEST = 250_000, 5_000_000
"""Rows of a segment: it ends with the first transaction behind so many. They grow with the log, so that a hundred or so
are enough for any: planning the history of one row costs 35 µs a partition."""
FEWEST = 200
"""A transaction is never in tables of less."""
SHARE = 8
"""A segment has an eighth of the log."""
BYTES_OF_ROW = 256
"""A backlog of a smaller threshold than SMALLEST such rows makes smaller segments."""
WORTH = 4
"""What has not a quarter of a segment's rows becomes no partition of its own: its rows are moved."""
NEAR = 8
"""An eighth of the threshold is no backlog any more."""
SETTLE_AFTER = 0.5
"""Seconds without a batch after which a segment ends."""
PAUSE, LONGEST_PAUSE, STAY_AWAY = 5.0, 300.0, 30.0
"""Seconds without a run after one whose last segment was too small: twice as long each time."""


@dataclass(frozen=True)
class SegmentSizes:
    """By the threshold in bytes of WAL."""

    threshold: int

    @property
    def smallest(self) -> int:
        """Rows of a segment of a small log."""
        return max(1, min(SMALLEST, self.threshold // BYTES_OF_ROW))

    @property
    def largest(self) -> int:
        """Rows of a table: more have only those of one transaction, in several tables."""
        return max(FEWEST, self._most)

    @property
    def _most(self) -> int:
        return min(LARGEST, self.smallest * (LARGEST // SMALLEST))

    def full(self, events: int) -> int:
        """Rows of a segment, where the log has so many events."""
        return min(self._most, max(self.smallest, events // SHARE))

    def is_worth(self, rows: int, events: int) -> bool:
        """Whether a segment of so many rows becomes a partition."""
        return rows * WORTH >= self.full(events)

    def is_backlog(self, behind: int) -> bool:
        """Whether so many bytes of WAL ahead are one. Where the threshold is less than a row, whatever comes is."""
        return behind >= self.threshold or self.threshold < BYTES_OF_ROW

    def is_near(self, behind: int) -> bool:
        """Whether so many bytes of WAL ahead are none any more."""
        return behind <= self.threshold // NEAR and self.threshold >= BYTES_OF_ROW

    def pause(self, before: float) -> float:
        """Seconds until the next run, after one that was not worth it; `before`: what it was the last time."""
        return min(LONGEST_PAUSE * self._scale, max(PAUSE * self._scale, 2 * before))

    @property
    def stay_away(self) -> float:
        """Seconds without a try where the events table has what its partitions would lack."""
        return STAY_AWAY * self._scale

    @property
    def _scale(self) -> float:
        return self.smallest / SMALLEST
