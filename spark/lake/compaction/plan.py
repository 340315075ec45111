"""Which small files become one: those of a table and day that have the same columns and follow each other. Pure.

While a day goes on, what was exported since is merged by the hour, so that each change is written again once by that;
a day that is over is merged once more, into files of a size that all engines like. Files are merged only where no other
file of the table lies between them by seq: the order of files by seq stays what it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

SMALL = 128 * 1024 * 1024
"""Bytes below which a file is a small one."""
ENOUGH = 256 * 1024 * 1024
"""Bytes with which a merged file is large enough; it has at most twice as many."""
WAITING = 16
"""So many files of a table are merged before an hour has passed."""
AS_EXPORTED, OF_THE_DAY, STAYS = 0, 1, 2
"""Levels: `pipeline.export_files.merged`."""


@dataclass(frozen=True)
class MergeCandidate:
    """A file of changes. `level`: as above; `is_open`: its day may go on; `has_waited`: for an hour."""

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
        """Only files of one kind are merged."""
        return self.schema_id, self.source_id, self.source_epoch, self.day


@dataclass(frozen=True)
class CompactionPlan:
    """`merged`: files that become one, each in order of seq. `kept`: files of days that are over, which stay."""

    merged: Sequence[Sequence[MergeCandidate]]
    kept: Sequence[MergeCandidate]


def plan(files: Sequence[MergeCandidate]) -> CompactionPlan:
    """Of files of whole tables, from the first that may be merged on."""
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
    """Of the file that a group becomes."""
    return OF_THE_DAY if group[0].is_open and size < SMALL else STAYS


def _due_kinds(table: Sequence[MergeCandidate]) -> set[object]:
    """Which kinds of files of a table are to be merged now."""
    kinds: dict[object, list[MergeCandidate]] = {}
    for file in table:
        if file.day and file.level == AS_EXPORTED:
            kinds.setdefault(file.kind, []).append(file)
    due = {kind for kind, new in kinds.items() if len(new) >= WAITING or any(file.has_waited for file in new)}
    return due | {file.kind for file in table if file.day and not file.is_open and file.level < STAYS}


def _neighbours(table: Sequence[MergeCandidate], due: set[object]) -> Iterator[list[MergeCandidate]]:
    """Files that may be merged, as far as they follow each other."""
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
    """As many to each merged file as it is to have."""
    groups: list[list[MergeCandidate]] = [[]]
    for file in files:
        if sum(each.bytes for each in groups[-1]) >= ENOUGH:
            groups.append([])
        groups[-1].append(file)
    if len(groups) > 1 and sum(file.bytes for file in groups[-1]) < SMALL:
        last = groups.pop()
        groups[-1] += last
    return list(groups)
