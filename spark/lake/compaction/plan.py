"""Plans which small files are merged: those of a table and day that have the same columns and follow each other. Pure.

While a day is open, its new files are merged every hour, which writes each change one more time. When the day is over,
its files are merged again, into files of a size that suits all engines. Files are merged only if no other file of the
table is between them by seq: the order of files by seq does not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

SMALL = 128 * 1024 * 1024
"""Bytes below which a file is small."""
ENOUGH = 256 * 1024 * 1024
"""Bytes with which a merged file is large enough; it may have up to twice as many."""
WAITING = 16
"""If a table has this many new files, they are merged before an hour has passed."""
AS_EXPORTED, OF_THE_DAY, STAYS = 0, 1, 2
"""Levels of merging, stored in `pipeline.export_files.merged`."""


@dataclass(frozen=True)
class MergeCandidate:
    """A file of changes. `level`: its level of merging; `is_open`: its day is open; `has_waited`: it is an hour old."""

    id: int
    export_id: int
    upto_seq: int
    dataset: str
    version: int
    schema_id: int
    day: str | None
    source_id: str | None
    source_epoch: int | None
    table_oid: int
    path: str
    rows: int
    bytes: int
    sha256: str
    first_seq: int
    last_seq: int
    first_lsn: int | None
    first_idx: int | None
    last_lsn: int | None
    last_idx: int | None
    level: int
    is_open: bool
    has_waited: bool

    @property
    def kind(self) -> object:
        """The kind of the file: only files of one kind are merged."""
        return self.schema_id, self.source_id, self.source_epoch, self.day


@dataclass(frozen=True)
class CompactionPlan:
    """`merged`: groups of files that become one file, in order of seq. `kept`: files of past days that stay."""

    merged: Sequence[Sequence[MergeCandidate]]
    kept: Sequence[MergeCandidate]


def plan(files: Sequence[MergeCandidate]) -> CompactionPlan:
    """Plan the merges of files. `files`: all files of tables, beginning with the first that may be merged."""
    found: list[Sequence[MergeCandidate]] = []
    ordered = sorted(files, key=lambda file: (file.table_oid, file.first_seq, file.id))
    for _, of_table in groupby(ordered, key=lambda file: file.table_oid):
        table = list(of_table)
        due = _due_kinds(table)
        for neighbours in _neighbours(table, due):
            found += [group for group in _divide(neighbours) if len(group) > 1]
    taken = {file.id for group in found for file in group}
    kept = [file for file in files if file.day and not file.is_open and file.level < STAYS and file.id not in taken]
    return CompactionPlan(found, kept)


def level(group: Sequence[MergeCandidate], size: int) -> int:
    """Return the level of the file that a group becomes."""
    return OF_THE_DAY if group[0].is_open and size < SMALL else STAYS


def _due_kinds(table: Sequence[MergeCandidate]) -> set[object]:
    """Return the kinds of files of a table that must be merged now."""
    kinds: dict[object, list[MergeCandidate]] = {}
    for file in table:
        if file.day and file.level == AS_EXPORTED:
            kinds.setdefault(file.kind, []).append(file)
    due = {kind for kind, new in kinds.items() if len(new) >= WAITING or any(file.has_waited for file in new)}
    return due | {file.kind for file in table if file.day and not file.is_open and file.level < STAYS}


def _neighbours(table: Sequence[MergeCandidate], due: set[object]) -> Iterator[list[MergeCandidate]]:
    """Yield lists of files that may be merged and follow each other."""
    of_kind: dict[object, list[MergeCandidate]] = {}
    for file in table:
        for kind in list(of_kind):
            if kind != file.kind and file.first_seq > of_kind[kind][-1].last_seq:
                yield of_kind.pop(kind)
        if file.kind in due and _is_small(file):
            of_kind.setdefault(file.kind, []).append(file)
        elif file.kind in of_kind:
            yield of_kind.pop(file.kind)
    yield from of_kind.values()


def _is_small(file: MergeCandidate) -> bool:
    return file.bytes < SMALL and (file.level == AS_EXPORTED or not file.is_open)


def _divide(files: Sequence[MergeCandidate]) -> list[Sequence[MergeCandidate]]:
    """Divide files into groups, each of which makes one merged file of the right size."""
    groups: list[list[MergeCandidate]] = [[]]
    for file in files:
        if sum(each.bytes for each in groups[-1]) >= ENOUGH:
            groups.append([])
        groups[-1].append(file)
    if len(groups) > 1 and sum(file.bytes for file in groups[-1]) < SMALL:
        last = groups.pop()
        groups[-1] += last
    return list(groups)
