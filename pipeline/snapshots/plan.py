"""In which ranges a table is read.

Blocks, not keys: every table has them, no index is read, and how many rows they hold is known beforehand. A row that
moves from a block that is still to be read into one that was read already does so by an update, which the stream has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.log.staging.ranges import PlannedRange

ROWS, BYTES = 6_000, 16_000_000
"""About so many rows, and at most so many bytes, are one range: what is lost when its reading is broken off. Less is
taken of it while the stream has changes (pipeline.snapshots.pace)."""
BLOCK = 8_192
ROWS_PER_BLOCK = 60
"""Where the table was never analyzed."""


@dataclass(frozen=True)
class RelationSize:
    """A relation as it is now. `file`: its pg_relation_filenode. `tuples`: pg_class.reltuples, -1 where not known.

    `name`: qualified and quoted.
    """

    oid: int
    name: str
    table_oid: int
    file: int
    blocks: int
    tuples: float
    pages: int
    bytes: int

    @property
    def rows(self) -> int:
        """About how many rows it has."""
        return round(self.blocks * self._density)

    @property
    def _density(self) -> float:
        return self.tuples / self.pages if self.tuples >= 0 and self.pages > 0 else ROWS_PER_BLOCK


def by_blocks(relation: RelationSize) -> Iterator[PlannedRange]:
    """Ranges of blocks, in their order. Blocks that are added later hold only what the stream has."""
    step = max(1, min(round(ROWS / max(relation._density, 0.01)), BYTES // BLOCK))
    for first in range(0, relation.blocks, step):
        until = min(first + step, relation.blocks)
        yield PlannedRange(relation.oid, relation.table_oid, relation.file, first, until)


def whole(relation: RelationSize) -> Iterator[PlannedRange]:
    """One range: where rows have no key, changes that are made meanwhile could not be told from what was read."""
    if relation.blocks:
        yield PlannedRange(relation.oid, relation.table_oid, relation.file, 0, None)
