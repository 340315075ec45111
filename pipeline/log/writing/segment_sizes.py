"""The sizes of the tables to which a backlog is written, and when a segment begins and ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass

SMALLEST, LARGEST = 250_000, 5_000_000
"""Rows after which a segment ends, with a transaction. They grow with the log, so that about a hundred segments are
enough for any log: planning the query for the history of one row costs 35 µs a partition."""
FEWEST = 200
"""The fewest rows of a table, if a transaction needs several tables."""
SHARE = 8
"""A segment has this fraction of the log's events: an eighth."""
BYTES_OF_ROW = 256
"""The bytes that are counted for a row. If the threshold is below SMALLEST such rows, segments are smaller."""
WORTH = 4
"""The rows of a segment are moved instead of becoming a partition if it has less than a quarter of a full segment."""
NEAR = 8
"""A backlog ends when an eighth of the threshold is left."""
SETTLE_AFTER = 0.5
"""Seconds without a batch after which a segment ends."""
PAUSE, LONGEST_PAUSE, STAY_AWAY = 5.0, 300.0, 30.0
"""Seconds without a run after one whose last segment was too small, doubled each time; their limit; and the seconds
without a run if tables cannot become partitions."""


@dataclass(frozen=True)
class SegmentSizes:
    """The sizes for a `threshold`, the bytes of WAL from which on a worker is behind enough for partitions."""

    threshold: int

    @property
    def smallest(self) -> int:
        """The rows of a segment in a small log."""
        return max(1, min(SMALLEST, self.threshold // BYTES_OF_ROW))

    @property
    def largest(self) -> int:
        """The most rows of a table. A transaction that has more is written to several tables."""
        return max(FEWEST, self._most)

    @property
    def _most(self) -> int:
        return min(LARGEST, self.smallest * (LARGEST // SMALLEST))

    def full(self, events: int) -> int:
        """Return the rows of a full segment if the log has this number of events."""
        return min(self._most, max(self.smallest, events // SHARE))

    def is_worth(self, rows: int, events: int) -> bool:
        """Return True if a segment of `rows` is large enough for a partition."""
        return rows * WORTH >= self.full(events)

    def is_backlog(self, behind: int) -> bool:
        """Return True if `behind` bytes of WAL are a backlog. If the threshold is less than a row, any are."""
        return behind >= self.threshold or self.threshold < BYTES_OF_ROW

    def is_near(self, behind: int) -> bool:
        """Return True if a backlog has ended when `behind` bytes of WAL are left."""
        return behind <= self.threshold // NEAR and self.threshold >= BYTES_OF_ROW

    def pause(self, before: float) -> float:
        """Return the seconds until the next run, after one that was too small; `before`: the previous pause."""
        return min(LONGEST_PAUSE * self._scale, max(PAUSE * self._scale, 2 * before))

    @property
    def stay_away(self) -> float:
        """Seconds without another try if tables cannot become partitions of the events table."""
        return STAY_AWAY * self._scale

    @property
    def _scale(self) -> float:
        return self.smallest / SMALLEST
