"""What a fold makes, and the folds of a table one over the other, whichever engine does them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lake.states import plan
from lake.states.plan import BucketFile, PlannedFold, StateColumn
from lake.storage.new_file import FileTarget
from lake.storage.where import LakePath, relative

MOST_BYTES = 80 * 1024 * 1024
"""Of rows in the memory of one task, which takes four times that at most."""


@dataclass(frozen=True)
class WrittenBucket:
    """A file that is whole and durable, and that no reader finds yet."""

    bucket: int
    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class FoldTask:
    """What an engine folds: the first of `foldings` over its version in `base_folder`; it writes to `target`.

    `most_bytes`: what the rows of the changes may take in memory, and those of the base, for a table that is small.
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
    """What changes are folded over: a version, or what the fold before has made."""

    folder: LakePath
    files: Sequence[BucketFile]
    columns: Sequence[StateColumn]
    seq: int
    buckets: int

    @property
    def rows(self) -> int:
        """Of all its files."""
        return sum(file.rows for file in self.files)


FoldEngine = Callable[[FoldBase | None, PlannedFold, FileTarget], FoldResult]
"""A fold over a base, which writes there."""


def fold_in_order(
    one: FoldEngine, base_folder: LakePath, foldings: Sequence[PlannedFold], target: FileTarget
) -> FoldResult:
    """The last of the folds, each over what the one before has made; the first over its version in `base_folder`."""
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
