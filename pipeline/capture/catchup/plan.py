"""How a backlog is split into parts, and which parts are reached. Pure: no database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from pipeline.wal import lsn

SKIP = 0.04
"""What a byte that a copy of the slot skips takes of what one takes that is read and staged (docs/benchmarks.md)."""


@dataclass(frozen=True)
class BacklogPart:
    """The transactions whose commit records begin in [from_lsn, until_lsn), staged by one worker.

    Worker 0 is the anchor. `until_lsn` None: the last part, which also stages what commits later. `position`: up to
    where it is staged; `commit_lsn`: its last transaction with rows, 0 before that. `reached`: everything before the
    part is staged, so the shuffler may read it. `first_seq`: what is read of it may become partitions from here on.
    """

    worker: int
    from_lsn: lsn.Shown
    until_lsn: lsn.Shown | None
    position: lsn.Shown
    reached: bool = False
    commit_lsn: int = 0
    first_seq: int | None = None

    JSON: ClassVar = ("worker", "from_lsn", "position", "until_lsn", "left_bytes", "reached")

    @property
    def complete(self) -> bool:
        """Whether all of it is staged; never true for the last part."""
        return self.until_lsn is not None and self.position >= self.until_lsn

    @property
    def left_bytes(self) -> int | None:
        """Bytes of it that are not staged yet; None for the last part, which has no end."""
        return None if self.until_lsn is None else max(0, self.until_lsn - self.position)


def split_backlog(position: int, wal_end: int, parts: int) -> list[BacklogPart]:
    """At most `parts` parts of [position, wal_end), the anchor's first; the last one has no end. Each is smaller by
    what its slot skips before it begins, so that they take the same time.

    Bounds may be anywhere in the WAL, also inside of records. With fewer bytes there are fewer parts; an empty list
    when only the anchor's is left.
    """
    span = wal_end - position
    parts = min(parts, span)
    if parts < 2:
        return []
    bounds = [position]
    for left, share in zip(range(parts - 1, 0, -1), _shares(parts), strict=True):  # a byte at least for each
        bounds.append(min(max(position + round(span * share), bounds[-1] + 1), wal_end - left))
    ends: list[int | None] = [*bounds[1:], None]
    return order_parts(
        BacklogPart(worker, begin, end, begin) for worker, (begin, end) in enumerate(zip(bounds, ends, strict=True))
    )


def _shares(parts: int) -> list[float]:
    """What is before each but the first, as a share of all: with F before it a part takes F * SKIP and its own size."""
    left = [(1 - SKIP) ** part for part in range(1, parts + 1)]
    return [(1 - each) / (1 - left[-1]) for each in left[:-1]]


def order_parts(parts: Iterable[BacklogPart]) -> list[BacklogPart]:
    """The parts in order of WAL, with `reached` set."""
    found: list[BacklogPart] = []
    for part in sorted(parts, key=lambda part: part.from_lsn):
        found.append(replace(part, reached=all(before.complete for before in found)))
    return found
