"""The current state of each table with a key.

A version goes through the ledger's states. `writing`: files are made where no reader looks, then the whole folder is
renamed into place. `committed`: the folder stays, and then `latest` is set to it. After a crash at any point `latest`
names a whole version, and `recover` does the rest.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from adbc_driver_postgresql import dbapi
from pyspark.sql import SparkSession

from lake import layout
from lake.errors import ExportError
from lake.identity import Lake
from lake.states.fold import Folded, fold
from lake.states.folders import States, datasets
from lake.states.ledger import StateLedger
from lake.states.plan import BucketFile, Folding, behind, plan

KEPT = 3
"""How many versions of each table's state are kept, the newest included."""


@dataclass(frozen=True)
class Published:
    """A state as of `seq`: its rows, in how many buckets, and how many of those are new files."""

    dataset: str
    seq: int
    rows: int
    buckets: int
    rewritten: int


def published(folding: Folding, folded: Folded, files: Sequence[BucketFile]) -> Published:
    """The state that a fold has made; `files` are all files of its version."""
    rows = sum(file.rows for file in files)
    return Published(folding.dataset, folding.seq, rows, folded.buckets, len(folded.written))


def recover(lake: Lake) -> None:
    """Finish or remove what an earlier exporter left. The lake's lock must be held, and no state being written."""
    ledger = _ledger(lake)
    ledger.fail_unfinished()
    versions = ledger.committed()
    for dataset in datasets(lake.root):
        seqs = [version.seq for version in versions if version.dataset == dataset]
        states = States(lake.root, dataset)
        if seqs:
            states.set_latest(max(seqs))
        states.sweep(seqs)


def outdated(lake: Lake) -> list[str]:
    """Datasets with a key whose exported changes are newer than their state. If there are none, that is recorded."""
    found = behind(lake.ledger.committed(lake.id), _ledger(lake).committed())
    if not found:
        lake.ledger.folded(lake.id, lake.ledger.exported_upto(lake.id))
    return found


def fold_all(spark: SparkSession, lake: Lake, report: Callable[[Published], None]) -> None:
    """Bring every state up to what is exported. If some fail, the others are made, then the first error is raised."""
    failed: list[ExportError] = []
    seq = lake.ledger.exported_upto(lake.id)
    for dataset in outdated(lake):
        try:
            made = _advance(spark, lake, dataset, seq)
        except ExportError as error:
            failed.append(type(error)(f"the state of {dataset}: {error}"))
        else:
            report(made)
    if failed:
        raise failed[0]
    lake.ledger.folded(lake.id, seq)


def publish(lake: Lake, version: int, folding: Folding, folded: Folded) -> Published:
    """Make what a fold wrote the newest state of its table, and drop the oldest versions beyond KEPT."""
    ledger, states = _ledger(lake), States(lake.root, folding.dataset)
    staged = _staging(lake, version) / "version"
    files = states.assemble(staged, folding.seq, folded, base_folder(lake, folding))
    states.put_in_place(staged, folding.seq)
    ledger.commit(version, folded, files)
    states.set_latest(folding.seq)
    versions = ledger.committed(folding.dataset)
    for old in versions[:-KEPT]:
        ledger.drop(old.id)
    states.sweep([each.seq for each in versions[-KEPT:]])
    return published(folding, folded, files)


def _advance(spark: SparkSession, lake: Lake, dataset: str, seq: int) -> Published:
    folding = plan(dataset, lake.ledger.committed(lake.id), _ledger(lake).committed(dataset), seq)
    assert folding is not None, dataset  # noqa: S101  it has a key, as `outdated` found
    version = _ledger(lake).begin(folding)
    staging = _staging(lake, version)
    try:
        folded = fold(spark, lake.root, base_folder(lake, folding), folding, staging)
        return publish(lake, version, folding, folded)
    except (ExportError, dbapi.Error) as error:
        _ledger(lake).fail(version, str(error))
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _ledger(lake: Lake) -> StateLedger:
    return StateLedger(lake.ledger, lake.id)


def _staging(lake: Lake, version: int) -> Path:
    return lake.root / layout.STAGING / f"state-{version}"


def base_folder(lake: Lake, folding: Folding) -> Path:
    """The folder of the version that a fold begins with."""
    return States(lake.root, folding.dataset).version(folding.after)
