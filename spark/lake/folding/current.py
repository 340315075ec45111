"""The current state of each table with a key.

A version goes through the ledger's states. `writing`: files are made where no reader looks, then the whole folder is
renamed into place. `committed`: the folder stays, the table has the name that the version was made for, and then
`latest` gets its files (`lake.shown`). After a crash at any point `latest` is a whole version; `show_newest` and
`recover` do the rest. In a bucket there is neither a folder to rename nor one to show (`lake.states.in_bucket`).
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
from lake.shown import ShownFolders
from lake.states import divided, in_bucket
from lake.states.folded import FoldResult, FoldTask
from lake.states.folders import StateFolders
from lake.states.lake_tables import LakeTables
from lake.states.ledger import RefusedState, StateLedger, TableRoot
from lake.states.plan import BucketFile, PlannedFold, plan
from lake.states.side_by_side import FoldJob, JobStarter, side_by_side
from lake.storage import layout, replaced, written
from lake.storage.identity import Lake
from lake.storage.new_file import FileTarget
from lake.storage.where import LakePath
from lake.tables.source_tables import LinkedTable


@dataclass(frozen=True)
class PublishedState:
    """A state as of `seq`: its rows, in how many buckets, and how many of those are new files."""

    dataset: str
    seq: int
    rows: int
    buckets: int
    rewritten: int


@dataclass(frozen=True)
class PendingState:
    """What brings the state of a table up to the exported seq; `folded_upto`: how far it is. `error`: why it cannot.

    `waits`: the ledger's id of a table that may wait; None: it may not.
    """

    dataset: str
    root: TableRoot
    folded_upto: int
    foldings: Sequence[PlannedFold]
    error: ExportError | None = None
    waits: int | None = None


def describe_state(folding: PlannedFold, folded: FoldResult, files: Sequence[BucketFile]) -> PublishedState:
    """The state that a fold has made; `files` are all files of its version."""
    rows = sum(file.rows for file in files)
    return PublishedState(folding.dataset, folding.seq, rows, folded.buckets, len(folded.written))


def recover(lake: Lake, keep: float = replaced.KEEP, checkpoints: float = replaced.CHECKPOINTS) -> None:
    """Finish or remove what an earlier exporter left. The lake's lock must be held, and no state being written.

    Versions that were superseded `keep` seconds ago, or longer, are removed, but for the last of each day of the last
    `checkpoints` seconds: a state as of an earlier seq begins with one of them.
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
    written.settle_written(lake.ledger, str(lake.id))
    replaced.remove(lake, keep)


def show_newest(lake: Lake) -> None:
    """Show what an earlier exporter has committed and not shown, before the manifest says that readers find it."""
    ledger = StateLedger(lake.ledger, lake.id)
    for table in ledger.tables_to_show():
        _show(lake, table.id, str(table.dataset), ledger.versions(table.id)[-1].seq)


def find_outdated(lake: Lake, latest_age: float = 0.0) -> list[PendingState]:
    """Tables with a key whose exported changes are newer than their state, that which is farthest behind first.

    Without those that may wait, and have not for `latest_age` seconds: that they wait is recorded. If there are no
    others, that is recorded too. Tables that are divided among events tables are hidden.
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
    """Oids of all tables that have or had a state, where there are several events tables; whether each is shown."""
    return StateLedger(lake.ledger, lake.id).oids() if divided.other_events_tables(lake) else {}


def _needs_check(
    tables: LakeTables, table: LinkedTable, oids: Collection[int], datasets: Collection[str], divisible: dict[int, bool]
) -> bool:
    """Whether it has changed, or may have begun or ceased to be divided."""
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
    """Bring every state up to what is exported. If some fail, the others are made, then the first error is raised.

    `spark`: None where all of `pending` are errors.
    """
    failed: list[ExportError] = []
    seq = lake.ledger.exported_upto(lake.id)
    for each, made in _fold_pending(spark, lake, pending):
        if isinstance(made, ExportError):
            failed.append(type(made)(f"the state of {each.dataset}: {made}"))
        else:
            report(made)
    replaced.remove_names(lake)
    if not failed:
        lake.ledger.store_folded_upto(lake.id, seq)
    LakeManifest(lake).write_head()
    if failed:
        raise failed[0]


def publish(lake: Lake, table: int, version: int, folding: PlannedFold, folded: FoldResult) -> PublishedState:
    """Make what a fold wrote the newest state of its table, under the name that the table has by now."""
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
    """If the file system refuses that, the next run tries again."""
    if not isinstance(lake.root, Path) or ShownFolders(lake).set_latest(dataset, seq):
        StateLedger(lake.ledger, lake.id).record_shown(table, seq)


@dataclass(frozen=True)
class _BegunVersion:
    """A version that is being written, of a table that the ledger knows by that id."""

    pending: PendingState
    table: int
    version: int

    task: FoldTask


_FoldOutcomes = list[tuple[_BegunVersion, engines.Outcome | None]]
"""None: it is too large for the engine that tried."""


def _fold_pending(
    spark: SparkSession | None, lake: Lake, pending: Sequence[PendingState]
) -> Iterator[tuple[PendingState, PublishedState | ExportError]]:
    """Each table with what has come of it, as it ends: small ones many in one Spark job, the others beside them."""
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
    """Publish what has come of a fold, or give the version up."""
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
    """The folder of the version that a fold begins with; one that is not used where it begins with none."""
    return _base_folder(lake.root, folding) if isinstance(lake.root, Path) else lake.root / layout.CURRENT


def _base_folder(root: Path, folding: PlannedFold) -> Path:
    if folding.base is None:
        return root / layout.STAGING
    return StateFolders(root, folding.base.dataset).version(folding.base.seq)
