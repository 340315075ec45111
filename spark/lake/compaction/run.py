"""Runs a compaction: it merges small files of changes while exports continue; only its switch waits for exports.

A compaction goes through these states of its ledger:

- `writing`: it makes merged files that no reader knows; if the process ends, the next compaction removes them.
- `switched`: the ledger and Iceberg have the merged files instead of the small files.
- `done`: folders and the manifest have them, too.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from adbc_driver_postgresql import dbapi
from pyspark.sql import SparkSession

from lake.changes import exporter
from lake.changes.manifest import LakeManifest
from lake.compaction import merging, switching
from lake.compaction.ledger import CompactionLedger, ListedFile
from lake.compaction.merging import MergeOutcome, MergeSource
from lake.compaction.plan import STAYS, CompactionPlan, MergeCandidate, level, plan
from lake.errors import ExportError, ExportRunningError, FileMismatchError
from lake.running.cluster import run_tasks
from lake.storage import layout
from lake.storage.identity import Lake

AT_ONCE = 2_000
"""About how many files one compaction replaces. The limit bounds the work lost by a crash, and the wait of exports."""
SOON = 256 * 1024 * 1024
"""If at most this many bytes must be merged, the driver does that faster than Spark starts."""
NAMES = 3
"""The number of names for a merged file in a bucket: one for each attempt to upload it."""
_POLL = 0.2


@dataclass(frozen=True)
class CompactionSummary:
    """The result of one compaction: the number of files before and after, and the bytes of all merged files."""

    compaction: int
    files_before: int
    files_after: int
    bytes: int


def compact(
    lake: Lake, spark: Callable[[], SparkSession], report_wait: Callable[[str], None]
) -> Iterator[CompactionSummary]:
    """Merge all small files that may be merged now. Takes the lake's lock only for each switch.

    `spark` starts a session, and is called only if there is much to merge. `report_wait` gets the reason if the
    compaction must wait for an export. Raises ExportRunningError while another compaction is at work,
    UnfitTargetError if the lake is ahead of the log, and ExportError for files that could not be merged, after all
    others are merged.
    """
    ledger = CompactionLedger(lake.ledger, lake.id)
    if not ledger.lock():
        raise ExportRunningError("a compaction of this lake is already running; wait for it, or end it")
    if LakeManifest(lake).require_same_log() is not None:
        with lake_lock(lake, report_wait):  # the ledger may lack files that are in the lake
            pass
    _remove_unfinished(lake, ledger)
    refused: list[str] = []
    found = _plan(lake, ledger)
    for some in _batches_of_groups(found.merged):
        made = _compact_groups(lake, ledger, spark, report_wait, some, refused)
        if made is not None:
            yield made
    ledger.keep_files(found.kept)
    if refused:
        raise FileMismatchError("; ".join(refused[:3]))


def _remove_unfinished(lake: Lake, ledger: CompactionLedger) -> None:
    """Remove files of compactions that ended before their switch."""
    for unfinished in ledger.unfinished("writing"):
        if isinstance(lake.root, Path):  # in a bucket, an upload may still end later
            lake.folder.remove_all(each.path for each in unfinished.written)
        ledger.fail(unfinished.id, "its process ended before the lake had the files that it wrote")


def _plan(lake: Lake, ledger: CompactionLedger) -> CompactionPlan:
    upto = ledger.iceberg_upto()
    files = ledger.files(lake.ledger.exported_upto(lake.id) if upto is None else upto)
    fixed: set[str | None] = set()
    if isinstance(lake.root, Path):
        fixed = {None, *ledger.fixed_folders({file.dataset for file in files})}
    stay = [file for file in files if file.day and layout.day(file.path) in fixed and file.level < STAYS]
    found = plan([replace(file, day=None) if layout.day(file.path) in fixed else file for file in files])
    return CompactionPlan(found.merged, [*found.kept, *stay])


def _batches_of_groups(groups: Sequence[Sequence[MergeCandidate]]) -> Iterator[list[Sequence[MergeCandidate]]]:
    """Yield the groups for one compaction after the other.

    A day is never divided: each compaction makes a new folder for it.
    """
    taken: list[Sequence[MergeCandidate]] = []
    folder: str | None = None
    for group in sorted(groups, key=lambda group: layout.day(group[0].path) or ""):
        before, folder = folder, layout.day(group[0].path)
        if folder != before and sum(map(len, taken)) >= AT_ONCE:
            yield taken
            taken = []
        taken.append(group)
    if taken:
        yield taken


def _compact_groups(
    lake: Lake,
    ledger: CompactionLedger,
    spark: Callable[[], SparkSession],
    report_wait: Callable[[str], None],
    groups: Sequence[Sequence[MergeCandidate]],
    refused: list[str],
) -> CompactionSummary | None:
    number = ledger.begin()
    targets = [_targets(lake, group, number) for group in groups]
    possible = _listed((target, group) for names, group in zip(targets, groups, strict=True) for target in names)
    ledger.record_plan(number, possible, _paths(groups), sum(file.bytes for group in groups for file in group))
    try:
        outcomes = _merge_groups(lake, spark, groups, targets)
        refused += [outcome.refused for outcome in outcomes if outcome.refused is not None]
        good = [(group, made) for group, made in zip(groups, outcomes, strict=True) if made.refused is None]
        if not good:
            ledger.fail(number, refused[-1])
            return None
        groups, size = [group for group, _ in good], sum(made.bytes for _, made in good)
        chosen = _listed((made.target, group) for group, made in good)
        ledger.remove_later({each.path for each in possible} - {each.path for each in chosen})
        ledger.record_plan(number, chosen, _paths(groups), size)
        with lake_lock(lake, report_wait):
            switching.switch(lake, number, [_row(*each) for each in good], [file for group in groups for file in group])
    except (ExportError, dbapi.Error) as error:
        ledger.fail(number, str(error))
        raise
    return CompactionSummary(number, sum(map(len, groups)), len(groups), size)


def _merge_groups(
    lake: Lake,
    spark: Callable[[], SparkSession],
    groups: Sequence[Sequence[MergeCandidate]],
    targets: Sequence[Sequence[str]],
) -> list[MergeOutcome]:
    tasks = [
        merging.MergeTask(lake.root, [MergeSource(file.path, file.sha256, file.rows) for file in group], names)
        for group, names in zip(groups, targets, strict=True)
    ]
    if sum(file.bytes for group in groups for file in group) <= SOON:
        return [merging.merge(task) for task in tasks]
    return run_tasks(spark(), merging.merge, tasks, lambda _: None, description="compaction")


@contextmanager
def lake_lock(lake: Lake, report_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the lake's lock in the block: wait for exports, and finish what a crash has left."""
    was_reported = False
    while True:
        try:
            lake.ledger.lock(lake.id)
            break
        except ExportRunningError as error:
            if not was_reported:
                report_wait(str(error))
            was_reported = True
        time.sleep(_POLL)
    try:
        exporter.resume(lake)
        yield
    finally:
        lake.ledger.unlock(lake.id)


def _targets(lake: Lake, group: Sequence[MergeCandidate], number: int) -> Sequence[str]:
    """Return the possible names of a group's merged file; in a bucket, names that no other object ever has."""
    first, last_seq = group[0], max(file.last_seq for file in group)
    merged = partial(layout.merged_file, first.dataset, first.version, str(first.day), first.first_seq, last_seq)
    if isinstance(lake.root, Path):
        return [merged(str(number))]
    return [merged(f"{number}-{uuid.uuid4().hex}") for _ in range(NAMES)]


def _listed(files: Iterable[tuple[str, Sequence[MergeCandidate]]]) -> list[ListedFile]:
    return [ListedFile(path, group[0].dataset, group[0].version) for path, group in files]


def _paths(groups: Sequence[Sequence[MergeCandidate]]) -> list[ListedFile]:
    return [ListedFile(file.path, file.dataset, file.version) for group in groups for file in group]


def _row(group: Sequence[MergeCandidate], merged: MergeOutcome) -> dict[str, Any]:
    """Return the ledger's row of a group's merged file."""
    newest = max(group, key=lambda file: file.upto_seq)
    first = min(((f.first_lsn, f.first_idx) for f in group if f.first_lsn is not None), default=(None, None))
    last = max(((f.last_lsn, f.last_idx) for f in group if f.last_lsn is not None), default=(None, None))
    return {
        **asdict(newest),
        "path": merged.target,
        "rows": sum(file.rows for file in group),
        "bytes": merged.bytes,
        "sha256": merged.sha256,
        "first_seq": group[0].first_seq,
        "last_seq": max(file.last_seq for file in group),
        "first_lsn": first[0],
        "first_idx": first[1],
        "last_lsn": last[0],
        "last_idx": last[1],
        "level": level(group, merged.bytes),
    }
