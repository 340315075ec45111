"""Writes a table as of a seq to a separate folder. Takes no lock: an export may run at the same time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from lake.changes.files import ChangeFiles
from lake.errors import ExportError, UnfitTargetError
from lake.folding.current import PublishedState, base_folder, describe_state
from lake.folding.engines import fold_one
from lake.states.fold_tasks import FoldTask
from lake.states.folders import publish_output
from lake.states.lake_tables import LakeTables
from lake.states.ledger import StateLedger
from lake.states.plan import PlannedFold, StateVersion, plan
from lake.storage import layout
from lake.storage.folder import unfit
from lake.storage.identity import Lake
from lake.storage.new_file import FileTarget
from lake.tables.source_tables import LinkedTable

OUTPUTS = "states"
"""The folder in the lake for states that were requested without an output folder."""
ANOTHER = "name another folder"


@dataclass(frozen=True)
class StateRequest:
    """A requested state of a table as of `seq`, for the folder `output`; `dataset`: the table's name at that seq."""

    dataset: str
    seq: int
    output: Path
    tables: LakeTables
    table: LinkedTable


def check_request(lake: Lake, table: str, seq: int, output: Path | None) -> StateRequest:
    """Check a request for a state. `table` is `schema.table`; no `output`: states/<dataset>/<seq> in the lake.

    Raises ExportError for a table or seq that is not in the lake, for a table without a key or with unknown columns,
    and for an output folder that is not empty.
    """
    dataset, upto = _dataset(table), lake.ledger.exported_upto(lake.id)
    if not 0 < seq <= upto:
        raise ExportError(f"seq {seq} is not in the lake, which holds 1 to {upto}; name one of those, or export more")
    tables = LakeTables(lake, seq, (), [dataset])
    found = tables.owner(dataset)
    if found is None:
        known = any(dataset in each.datasets for each in tables.tables)
        if not known or not ChangeFiles(lake.ledger, lake.id).knows(dataset):
            raise ExportError(f"table {table} is not in the lake; name one that has been exported")
        raise ExportError(f"no table was named {table} as of seq {seq}; use the name that the table had then")
    if why := tables.division_reason(found):
        raise ExportError(f"there is no state of {table} as of seq {seq} in this lake: {why}")
    made = StateRequest(dataset, seq, _output(lake, dataset, seq, output), tables, found)
    if not _foldings(lake, made):
        raise ExportError(f"table {table} has no key as of seq {seq}, so it has no state; read its changes instead")
    with unfit(made.output, ANOTHER):
        if made.output.exists() and (held := sorted(entry.name for entry in made.output.iterdir())):
            raise UnfitTargetError(f"{made.output} holds {held[0]}; name a folder that is new or empty")
    return made


def _output(lake: Lake, dataset: str, seq: int, asked: Path | None) -> Path:
    if asked is not None:
        return asked.absolute()
    if not isinstance(lake.root, Path):
        raise UnfitTargetError(f"the lake is in the bucket {lake.root.bucket}; name a folder for the state by --output")
    return lake.root / OUTPUTS / dataset / str(seq)


def write_state(spark: SparkSession, lake: Lake, wanted: StateRequest) -> PublishedState:
    """Write a state, from the newest version that is not newer than the seq, or from the changes alone.

    If it raises ExportError, it leaves no files.
    """
    while True:
        foldings = _foldings(lake, wanted)
        try:
            return _fold_to_output(spark, lake, foldings, wanted.output)
        except ExportError:
            if foldings[0].base is None or foldings[0].base in _versions(lake, wanted):
                raise  # else an exporter dropped the base during the read: try again


def _foldings(lake: Lake, wanted: StateRequest) -> list[PlannedFold]:
    history = wanted.tables.history(wanted.table)
    return plan(history, lambda after: wanted.tables.files(wanted.table, after), _versions(lake, wanted), wanted.seq)


def _versions(lake: Lake, wanted: StateRequest) -> list[StateVersion]:
    ledger = StateLedger(lake.ledger, lake.id)
    known = ledger.table(wanted.table.root)
    return ledger.versions(known.id) if known else []


def _fold_to_output(spark: SparkSession, lake: Lake, foldings: Sequence[PlannedFold], output: Path) -> PublishedState:
    base = base_folder(lake, foldings[0])
    with _staging(output) as staging:
        folded = fold_one(spark, FoldTask(lake.root, base, foldings, FileTarget(staging)))
        files = publish_output(output, foldings[-1].seq, folded, base)
    return describe_state(foldings[-1], folded, files)


def _dataset(table: str) -> str:
    schema, _, name = table.partition(".")
    if not schema or not name:
        raise ExportError(f"table {table} has no schema; write schema.table")
    return layout.dataset(schema, name)


@contextmanager
def _staging(output: Path) -> Iterator[Path]:
    """Make a folder in `output` for unfinished files; remove both folders after an error."""
    staging = output / layout.STAGING
    with unfit(output, ANOTHER):
        staging.mkdir(parents=True)
    try:
        yield staging
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)
        raise
    shutil.rmtree(staging, ignore_errors=True)
