"""Runs the folds of a table with either engine; each fold begins with the result of the previous one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lake.states import plan
from lake.states.plan import BucketFile, PlannedFold, StateColumn
from lake.storage.new_file import FileTarget
from lake.storage.where import LakePath, relative

MOST_BYTES = 80 * 1024 * 1024
"""The most bytes of rows in the memory of one task; the task needs at most four times as much memory."""


@dataclass(frozen=True)
class WrittenBucket:
    """A file of a bucket that is complete and durable, and that no reader finds yet."""

    bucket: int
    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class FoldTask:
    """A task for an engine: fold `foldings`, the first over its version in `base_folder`, and write to `target`.

    `most_bytes`: the most bytes of a small table that the rows of changes, and those of the base, may take in memory.
    """

    root: LakePath
    base_folder: LakePath
    foldings: Sequence[PlannedFold]
    target: FileTarget
    rows_per_bucket: int = field(default_factory=lambda: plan.ROWS_PER_BUCKET)
    most_bytes: int = field(default_factory=lambda: MOST_BYTES)


@dataclass(frozen=True)
class FoldResult:
    """The result of a fold: new files, and files of the base that stay unchanged."""

    written: Sequence[WrittenBucket]
    kept: Sequence[BucketFile]
    buckets: int


@dataclass(frozen=True)
class FoldBase:
    """The base of a fold: a version, or the result of the fold before."""

    folder: LakePath
    files: Sequence[BucketFile]
    columns: Sequence[StateColumn]
    seq: int
    buckets: int

    @property
    def rows(self) -> int:
        """The number of rows in all files."""
        return sum(file.rows for file in self.files)


FoldEngine = Callable[[FoldBase | None, PlannedFold, FileTarget], FoldResult]
"""A function that folds changes over a base, and writes to a target."""


def fold_in_order(
    one: FoldEngine, base_folder: LakePath, foldings: Sequence[PlannedFold], target: FileTarget
) -> FoldResult:
    """Run folds, each over the result of the one before; the first uses its version in `base_folder`."""
    first = foldings[0]
    base = (
        FoldBase(base_folder, first.base.files, first.base_columns, first.base.seq, first.base.buckets)
        if first.base
        else None
    )
    for number, folding in enumerate(foldings):
        into = target / f"fold-{number}"
        made = one(base, folding, into)
        files = [
            BucketFile(relative(written.path, into.folder), written.bucket, written.rows, written.bytes, "")
            for written in made.written
        ]
        base = FoldBase(into.folder, files, folding.columns, folding.after, made.buckets)
    return made
