"""Divide a relation into the ranges in which its rows are read.

Ranges are blocks, not keys: every table has blocks, no index is needed, and their number of rows can be estimated. If a
row moves from an unread block into one that was read, it moves by an update, which the stream has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.log.staging.ranges import PlannedRange

ROWS, BYTES = 6_000, 16_000_000
"""A range has about this many rows, and at most this many bytes.

If its reading is interrupted, all of them are read again. While the stream has changes, ranges are shorter (LIVELY_ROWS
in pipeline.snapshots.worker).
"""
BLOCK = 8_192
ROWS_PER_BLOCK = 60
"""The estimate for a table that was never analyzed."""


@dataclass(frozen=True)
class RelationSize:
    """The file and the size of a relation. `name`: qualified and quoted.

    `file`: its pg_relation_filenode. `tuples`: pg_class.reltuples, -1 if unknown.
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
        """The estimated number of rows."""
        return round(self.blocks * self._density)

    @property
    def _density(self) -> float:
        return self.tuples / self.pages if self.tuples >= 0 and self.pages > 0 else ROWS_PER_BLOCK


def by_blocks(relation: RelationSize) -> Iterator[PlannedRange]:
    """Yield ranges of blocks, in their order. Blocks that are added later hold only rows that the stream has."""
    step = max(1, min(round(ROWS / max(relation._density, 0.01)), BYTES // BLOCK))
    for first in range(0, relation.blocks, step):
        until = min(first + step, relation.blocks)
        yield PlannedRange(relation.oid, relation.table_oid, relation.file, first, until)


def whole(relation: RelationSize) -> Iterator[PlannedRange]:
    """Yield one range for all rows: without a key, a change made between two ranges could not be matched to its row."""
    if relation.blocks:
        yield PlannedRange(relation.oid, relation.table_oid, relation.file, 0, None)
