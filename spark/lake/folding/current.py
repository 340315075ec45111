"""Brings the current state of each table with a key up to the exported changes.

A version of a state goes through these states of the ledger:

- `writing`: the export makes files where no reader looks, then renames the whole folder into place.
- `committed`: the folder stays, the table has the name for which the version was made, and then `latest` gets the files
  (`lake.shown_folders`).

After a crash at any point, `latest` is a complete version; `show_newest` and `recover` finish the work. In a bucket
there is no folder to rename or to show (`lake.states.in_bucket`).
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adbc_driver_postgresql import dbapi
from pyspark.sql import SparkSession

from lake.changes.files import ChangeFiles
from lake.changes.manifest import LakeManifest
from lake.errors import ExportError
from lake.folding import engines, waiting
from lake.shown_folders import ShownFolders
from lake.states import divided_tables, in_bucket
from lake.states.fold_tasks import FoldResult, FoldTask
from lake.states.folders import StateFolders
from lake.states.lake_tables import LakeTables
from lake.states.ledger import RefusedState, StateLedger, TableRoot
from lake.states.plan import BucketFile, PlannedFold, plan
from lake.states.side_by_side import FoldJob, JobStarter, side_by_side
from lake.storage import layout, replaced_files, written_objects
from lake.storage.identity import Lake
from lake.storage.new_file import FileTarget
from lake.storage.where import LakePath
from lake.tables.source_tables import LinkedTable


@dataclass(frozen=True)
class PublishedState:
    """A published state as of `seq`: the numbers of its rows, of its buckets, and of buckets with new files."""

    dataset: str
    seq: int
    rows: int
    buckets: int
    rewritten: int


@dataclass(frozen=True)
class PendingState:
    """The folds that bring the state of a table up to the exported seq, or the `error` that makes them impossible.

    `folded_upto`: the seq of the present state. `waits`: the ledger's id of a table that may wait; None: it may not.
    """

    dataset: str
    root: TableRoot
    folded_upto: int
    foldings: Sequence[PlannedFold]
    error: ExportError | None = None
    waits: int | None = None


def describe_state(folding: PlannedFold, folded: FoldResult, files: Sequence[BucketFile]) -> PublishedState:
    """Describe the state that a fold has made; `files`: all files of its version."""
    rows = sum(file.rows for file in files)
    return PublishedState(folding.dataset, folding.seq, rows, folded.buckets, len(folded.written))


def recover(lake: Lake, keep: float = replaced_files.KEEP, checkpoints: float = replaced_files.CHECKPOINTS) -> None:
    """Finish or remove the work that an earlier exporter left. Call it with the lake's lock, and while no fold runs.

    Versions that were superseded at least `keep` seconds ago are removed, except the last version of each day of the
    last `checkpoints` seconds: a state as of an earlier seq begins with one of these.
    """
    ledger = StateLedger(lake.ledger, lake.id)
    if isinstance(lake.root, Path):
        for dataset in ledger.unfinished():
            StateFolders(lake.root, dataset).sweep(ledger.seqs(dataset))
    ledger.fail_unfinished()
    for version in ledger.superseded(keep, checkpoints):
        if isinstance(lake.root, Path):
            ledger.drop(version.id)
            StateFolders(lake.root, version.dataset).remove(version.seq)
        else:
            in_bucket.drop(lake, version.id)
        ledger.forget(version.id)
    written_objects.settle_written(lake.ledger, str(lake.id))
    replaced_files.remove(lake, keep)


def show_newest(lake: Lake) -> None:
    """Show versions that an earlier exporter committed and did not show, before the manifest lists them for readers."""
    ledger = StateLedger(lake.ledger, lake.id)
    for table in ledger.tables_to_show():
        _show(lake, table.id, str(table.dataset), ledger.versions(table.id)[-1].seq)


def find_outdated(lake: Lake, latest_age: float = 0.0) -> list[PendingState]:
    """Find tables with a key whose exported changes are newer than their state; the farthest behind comes first.

    Tables that may wait, and have not waited for `latest_age` seconds yet, are excluded and recorded as waiting. If no
    table remains, the ledger stores the seq up to which all states are folded. Tables that are divided among events
    tables are hidden.
    """
    seq = lake.ledger.exported_upto(lake.id)
    oids, datasets = ChangeFiles(lake.ledger, lake.id).changed(lake.ledger.folded_upto(lake.id), seq)
    waited = waiting.read_waiting(lake)
    due = {root: each for root, each in waited.items() if each.seconds >= latest_age}
    oids = oids.union(*(each.oids for each in due.values()))
    divisible = _divisible(lake)
    tables = LakeTables(lake, seq, oids.union(divisible), datasets)
    pending = [
        each
        for table in tables.shown()
        if _needs_check(tables, table, oids, datasets, divisible) and (each := _plan_pending(lake, tables, table, seq))
    ]
    later = {each.waits for each in pending if each.waits and latest_age and each.root not in due}
    found = [each for each in pending if each.waits not in later]
    over = due.keys() - {each.root for each in found}
    waiting.store_waiting(lake, later, (due[root].id for root in over))
    if not found:
        lake.ledger.store_folded_upto(lake.id, seq)
    return sorted(found, key=lambda pending: (pending.folded_upto, pending.dataset))


def _divisible(lake: Lake) -> dict[int, bool]:
    """Return, by oid, True if a table is shown, for tables that have or had a state; empty with one events table."""
    return StateLedger(lake.ledger, lake.id).oids() if divided_tables.other_events_tables(lake) else {}


def _needs_check(
    tables: LakeTables, table: LinkedTable, oids: Collection[int], datasets: Collection[str], divisible: dict[int, bool]
) -> bool:
    """Return True if a table has changed, or if its division among events tables may have begun or ended."""
    if not {*table.oids.values()}.isdisjoint(oids) or not {*table.datasets}.isdisjoint(datasets):
        return True
    return tables.division_reason(table) is not None or not all(divisible.get(oid, True) for oid in table.oids.values())


def _plan_pending(lake: Lake, tables: LakeTables, table: LinkedTable, seq: int) -> PendingState | None:
    ledger = StateLedger(lake.ledger, lake.id)
    known = ledger.table(table.root)
    versions = ledger.versions(known.id) if known else []
    upto = versions[-1].seq if versions else 0
    history = tables.history(table)
    form = table.form_at(history.place)
    dataset = form.dataset if form else ""
    if form and (why := tables.division_reason(table)):
        ledger.refuse(ledger.add_table(table.root).id, RefusedState(dataset, seq, form, why))
        return None
    try:
        foldings = plan(history, lambda after: tables.files(table, after), versions, seq)
    except ExportError as error:
        return PendingState(dataset, table.root, upto, [], error)
    if not foldings:
        if known and known.dataset:
            ledger.hide(known.id)
        return None
    is_same = versions and (versions[-1].dataset, versions[-1].form_id) == (dataset, foldings[-1].form.form.id)
    if is_same and known and known.dataset == dataset and len(foldings) == 1 and not foldings[0].sources:
        return None
    may_wait = (
        known
        and known.dataset == dataset
        and waiting.may_wait(foldings, versions[-1] if versions else None)
        and not waiting.empties_table(lake, tables.files(table, max(upto, lake.ledger.folded_upto(lake.id))))
    )
    return PendingState(dataset, table.root, upto, foldings, waits=known.id if known and may_wait else None)


def fold_all(
    spark: SparkSession | None, lake: Lake, pending: Sequence[PendingState], report: Callable[[PublishedState], None]
) -> None:
    """Bring every state up to the exported seq. If some fail, the others are made, then the first error is raised.

    `spark` is None only if all of `pending` are errors.
    """
    failed: list[ExportError] = []
    seq = lake.ledger.exported_upto(lake.id)
    for each, made in _fold_pending(spark, lake, pending):
        if isinstance(made, ExportError):
            failed.append(type(made)(f"the state of {each.dataset}: {made}"))
        else:
            report(made)
    replaced_files.remove_names(lake)
    if not failed:
        lake.ledger.store_folded_upto(lake.id, seq)
    LakeManifest(lake).write_head()
    if failed:
        raise failed[0]


def publish(lake: Lake, table: int, version: int, folding: PlannedFold, folded: FoldResult) -> PublishedState:
    """Publish the result of a fold as the newest state of its table, under the table's present name."""
    ledger = StateLedger(lake.ledger, lake.id)
    if not isinstance(lake.root, Path):
        files = in_bucket.files(lake, folded)
        in_bucket.write_part(lake, version, folding, files)
        ledger.commit(version, folded, files)
        ledger.record_shown(table, folding.seq)
        return describe_state(folding, folded, files)
    states = StateFolders(lake.root, folding.dataset)
    staged = lake.root / _staging(version) / "version"
    base = _base_folder(lake.root, folding)
    files = states.assemble(staged, folding.seq, folded, base)
    states.put_in_place(staged, folding.seq)
    ledger.commit(version, folded, files)
    _show(lake, table, folding.dataset, folding.seq)
    return describe_state(folding, folded, files)


def _show(lake: Lake, table: int, dataset: str, seq: int) -> None:
    """Show a version to readers. If the file system refuses that, the next run tries again."""
    if not isinstance(lake.root, Path) or ShownFolders(lake).set_latest(dataset, seq):
        StateLedger(lake.ledger, lake.id).record_shown(table, seq)


@dataclass(frozen=True)
class _BegunVersion:
    """A version that is being written. `table`, `version`: their ids in the ledger."""

    pending: PendingState
    table: int
    version: int

    task: FoldTask


_FoldOutcomes = list[tuple[_BegunVersion, engines.Outcome | None]]
"""Versions with the outcomes of their folds; None: the table is too large for the engine that tried."""


def _fold_pending(
    spark: SparkSession | None, lake: Lake, pending: Sequence[PendingState]
) -> Iterator[tuple[PendingState, PublishedState | ExportError]]:
    """Yield each table with its outcome, as its fold ends. A Spark job folds many small tables, or one large table."""
    small: list[PendingState] = []
    large: list[PendingState] = []
    for each in pending:
        if each.error or spark is None:
            yield each, each.error or ExportError("Spark is not there")
        else:
            (small if engines.is_small(each.foldings) else large).append(each)
    if spark is None:
        return
    at_once = engines.TABLES_AT_ONCE
    waiting: deque[JobStarter[_FoldOutcomes]] = deque(
        partial(_begin_small, lake, small[start : start + at_once]) for start in range(0, len(small), at_once)
    )
    waiting.extend(partial(_begin_large, lake, each) for each in large)
    for folded in side_by_side(spark, waiting):
        for one, outcome in folded:
            if outcome is None:
                waiting.append(partial(_large_job, one))
            else:
                yield one.pending, _finish(lake, one, outcome)


def _begin_small(lake: Lake, pending: Sequence[PendingState]) -> FoldJob[_FoldOutcomes]:
    begun = [_begin(lake, each) for each in pending]

    def fold(spark: SparkSession) -> _FoldOutcomes:
        return list(zip(begun, engines.fold_small(spark, [one.task for one in begun]), strict=True))

    return fold


def _begin_large(lake: Lake, pending: PendingState) -> FoldJob[_FoldOutcomes]:
    return _large_job(_begin(lake, pending))


def _large_job(one: _BegunVersion) -> FoldJob[_FoldOutcomes]:
    return lambda spark: [(one, engines.fold_large(spark, one.task))]


def _begin(lake: Lake, pending: PendingState) -> _BegunVersion:
    ledger = StateLedger(lake.ledger, lake.id)
    table = ledger.add_table(pending.root).id
    version = ledger.begin(table, pending.foldings[-1])
    base = base_folder(lake, pending.foldings[0])
    return _BegunVersion(
        pending, table, version, FoldTask(lake.root, base, pending.foldings, _target(lake, version, pending))
    )


def _finish(lake: Lake, one: _BegunVersion, outcome: engines.Outcome) -> PublishedState | ExportError:
    """Publish the outcome of a fold, or mark the version failed."""
    try:
        if isinstance(outcome, ExportError):
            raise outcome
        return publish(lake, one.table, one.version, one.pending.foldings[-1], outcome)
    except (ExportError, dbapi.Error) as error:
        StateLedger(lake.ledger, lake.id).fail(one.version, str(error))
        if isinstance(error, ExportError):
            return error
        raise
    finally:
        if isinstance(one.task.target.folder, Path):
            shutil.rmtree(one.task.target.folder, ignore_errors=True)


def _target(lake: Lake, version: int, pending: PendingState) -> FileTarget:
    if isinstance(lake.root, Path):
        return lake.target(_staging(version), state=version)
    return in_bucket.target(lake, version, pending.foldings[-1])


def _staging(version: int) -> str:
    return f"{layout.STAGING}/state-{version}"


def base_folder(lake: Lake, folding: PlannedFold) -> LakePath:
    """Return the folder of the version that a fold begins with. Without such a version, the folder is not used."""
    return _base_folder(lake.root, folding) if isinstance(lake.root, Path) else lake.root / layout.CURRENT


def _base_folder(root: Path, folding: PlannedFold) -> Path:
    if folding.base is None:
        return root / layout.STAGING
    return StateFolders(root, folding.base.dataset).version(folding.base.seq)
