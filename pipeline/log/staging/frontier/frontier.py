"""The model of how far the log is. Every statement in this folder's `sql/` agrees with it. Pure.

| statement | asked by | property of the model |
|---|---|---|
| `staging_state` | the shuffler, for each step | `complete`, `next_range`, `next_adopted`, `segments_to_move` |
| `log_end` | the direct path, before it writes | `has_staged` |
| `begin_at_head` | the direct path, in its transaction | `lets_direct_write` |
| `is_drained` | the partitioned path, while it waits | `is_drained` |
| `begin_run` | the partitioned path, in its transaction | `lets_run_begin` |
| `log_reaches` | followers, sessions and commands that wait for an LSN | `reaches` |
| `moved_position` | the samples of lag | `moved_position` |

They are separate statements, since each runs often and needs other columns: one statement for all made those that run
for each batch 15 to 35 % slower. A property test compares them with this model, over random states of the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class WorkerPart:
    """A worker's progress. LSNs are those of the source.

    `from_lsn`: the beginning of its part of the WAL, 0 for worker 0. Everything in that part before `position` is
    staged, and its last transaction with rows committed at `commit_lsn`.
    """

    worker: int
    from_lsn: int
    position: int
    commit_lsn: int
    epoch: int = 0


@dataclass(frozen=True)
class SegmentState:
    """A segment of `wal_events`, with the commit LSNs of its first and last row, None while it has none."""

    worker: int
    state: str
    first_lsn: int | None
    last_lsn: int | None


@dataclass(frozen=True)
class RangeState:
    """A range of a table that was read; its place in the log is `commit_lsn` once its state is "placed"."""

    epoch: int
    state: str
    commit_lsn: int | None


@dataclass(frozen=True)
class AdoptedState:
    """A table of rows that becomes a partition, or is moved, with the commit LSNs of its first and last row."""

    state: str
    first_lsn: int
    last_lsn: int


@dataclass(frozen=True)
class Frontier:
    """How far the log of one source is.

    `epoch` and `watermark`: every transaction of that epoch that commits at the watermark or before is in the log.
    `has_retried_letter`: a dead letter waits to be written again.
    """

    epoch: int
    watermark: int
    workers: Sequence[WorkerPart]
    segments: Sequence[SegmentState] = ()
    ranges: Sequence[RangeState] = ()
    adopted: Sequence[AdoptedState] = ()
    has_retried_letter: bool = False

    @property
    def reached(self) -> list[WorkerPart]:
        """The workers before whose parts everything is staged, in the order of their parts in the WAL."""
        parts = sorted(self.workers, key=lambda part: part.from_lsn)
        reached: list[WorkerPart] = []
        for part in parts:
            if any(before.position < after.from_lsn for before, after in pairwise([*reached, part])):
                break
            reached.append(part)
        return reached

    @property
    def complete(self) -> int:
        """The last transaction with rows that is staged completely, as is everything before it."""
        return max(part.commit_lsn for part in self.reached)

    @property
    def segments_to_move(self) -> list[SegmentState]:
        """Segments with rows, of reached workers, in the order in which they are moved."""
        workers = {part.worker for part in self.reached}
        return [each for each in self.segments if each.state in ("filling", "full") and each.worker in workers]

    @property
    def next_range(self) -> int | None:
        """The place of the next range behind the watermark, in this epoch."""
        return min(self._placed(of_epoch=True), default=None)

    @property
    def next_adopted(self) -> int | None:
        """The next transaction behind the watermark whose rows are in a table that waits to become a partition."""
        waiting = [each for each in self.adopted if each.state == "waiting"]
        return min((max(each.first_lsn, self.watermark + 1) for each in waiting), default=None)

    @property
    def has_staged(self) -> bool:
        """True if something staged is not in the log, so that nothing may be written behind it.

        All workers count, also those that are not reached: while parts are read, nothing is written directly.
        """
        return self._waits(self.segments) or self.next_adopted is not None or self.next_range is not None

    def lets_direct_write(self, after: int) -> bool:
        """Return True if a writer that found the watermark at `after` may write a batch directly.

        This leaves out segments and ranges: the writer has checked them, and checks again after it has staged anything
        or placed a range.
        """
        (worker,) = (part for part in self.workers if part.worker == 0)
        return self.watermark == after and worker.epoch == self.epoch and self.next_adopted is None

    @property
    def is_drained(self) -> bool:
        """True if everything that is staged for reached workers is in the log.

        This leaves out ranges: a run waits for rows that the shuffler is moving, and checks ranges when it begins.
        """
        return not self._waits(self.segments_to_move) and self.next_adopted is None

    @property
    def lets_run_begin(self) -> bool:
        """True if worker 0 may begin a run, in which no other session hands out a seq.

        Ranges of any epoch count: those of an epoch that has ended are dropped before the next one begins to move.
        """
        (worker,) = (part for part in self.workers if part.worker == 0)
        has_range = bool(self._placed(of_epoch=False))
        return self.is_drained and worker.epoch == self.epoch and not has_range and not self.has_retried_letter

    def reaches(self, lsn: int) -> bool:
        """Return True if the log has everything that commits before an LSN.

        Segments of all workers that read the stream count. The last staged transaction may have no rows: then the log
        is complete if nothing waits behind the watermark.
        """
        staged = [each for each in self.segments if each.worker >= 0]
        waits = self._waits(staged) or bool(self._placed(of_epoch=False))
        waits = waits or any(each.state == "waiting" and each.last_lsn > self.watermark for each in self.adopted)
        return self.watermark >= lsn or (max(part.position for part in self.reached) >= lsn and not waits)

    @property
    def moved_position(self) -> int | None:
        """The LSN before which everything is in the log; None while a transaction with rows waits.

        This leaves out ranges, since it measures the lag of the stream, and adopted tables, whose transactions lie
        behind the watermark as staged ones do.
        """
        return max(part.position for part in self.reached) if self.watermark >= self.complete else None

    def _waits(self, segments: Sequence[SegmentState]) -> bool:
        return any(
            each.state in ("filling", "full") and each.last_lsn is not None and each.last_lsn > self.watermark
            for each in segments
        )

    def _placed(self, *, of_epoch: bool) -> list[int]:
        return [
            each.commit_lsn
            for each in self.ranges
            if each.state == "placed"
            and each.commit_lsn is not None
            and each.commit_lsn > self.watermark
            and (each.epoch == self.epoch or not of_epoch)
        ]
