"""Splits a backlog into parts, and finds which parts are reached. Pure: no database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from pipeline.wal import lsn

SKIP = 0.04
"""The time to skip a byte of WAL, as a share of the time to read and stage it (docs/internals/benchmarks.md)."""


@dataclass(frozen=True)
class BacklogPart:
    """One worker's part of a backlog: the transactions whose commit records begin in [from_lsn, until_lsn).

    Worker 0 is the anchor. `until_lsn` None: a last part that has all later transactions, too. `position`: the
    part is staged up to here; `commit_lsn`: its last transaction with rows, 0 before the first. `reached`: everything
    before the part is staged, so the shuffler may read the part. `first_seq`: rows of the part may become partitions,
    from this seq on; None: they are staged.
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
        """True if the whole part is staged; never true for the last part."""
        return self.until_lsn is not None and self.position >= self.until_lsn

    @property
    def left_bytes(self) -> int | None:
        """Bytes of the part that are not staged yet; None for the last part, which has no end."""
        return None if self.until_lsn is None else max(0, self.until_lsn - self.position)


def split_backlog(position: int, wal_end: int, parts: int, until: int | None = None) -> list[BacklogPart]:
    """Split [position, wal_end) into at most `parts` parts, the anchor's first. The last part ends at `until`;
    None: it has no end.

    Later parts are smaller, because their slots first skip the WAL before them: so all parts take the same time.
    Bounds may be anywhere in the WAL, also inside of records. With fewer bytes than parts there are fewer parts.
    Returns an empty list if only the anchor's part would remain.
    """
    span = wal_end - position
    parts = min(parts, span)
    if parts < 2:
        return []
    bounds = [position]
    for left, share in zip(range(parts - 1, 0, -1), _shares(parts), strict=True):  # at least one byte for each part
        bounds.append(min(max(position + round(span * share), bounds[-1] + 1), wal_end - left))
    ends: list[int | None] = [*bounds[1:], until]
    return order_parts(
        BacklogPart(worker, begin, end, begin) for worker, (begin, end) in enumerate(zip(bounds, ends, strict=True))
    )


def _shares(parts: int) -> list[float]:
    """Return the share of the backlog that lies before each part but the first.

    A part with the share F before it takes F * SKIP and its own size.
    """
    left = [(1 - SKIP) ** part for part in range(1, parts + 1)]
    return [(1 - each) / (1 - left[-1]) for each in left[:-1]]


def order_parts(parts: Iterable[BacklogPart]) -> list[BacklogPart]:
    """Return the parts in order of WAL, with `reached` set."""
    ordered: list[BacklogPart] = []
    for part in sorted(parts, key=lambda part: part.from_lsn):
        ordered.append(replace(part, reached=all(before.complete for before in ordered)))
    return ordered
