"""Writes a table as it was at some seq to its own folder. Takes no lock: an export may run meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lake import layout
from lake.errors import ExportError, TargetUnfit
from lake.folder import unfit
from lake.identity import Lake
from lake.states.current import Published, base_folder, published
from lake.states.fold import fold
from lake.states.folders import hand_over
from lake.states.ledger import StateLedger
from lake.states.plan import Folding, plan

OUTPUTS = "states"
"""The folder in the lake for states that were requested without an output folder."""
ANOTHER = "name another folder"


@dataclass(frozen=True)
class Wanted:
    """The state of a dataset as of `seq`, for the folder `output`."""

    dataset: str
    seq: int
    output: Path


def wanted(lake: Lake, table: str, seq: int, output: Path | None) -> Wanted:
    """Check what was requested. `table` is `schema.table`; no `output`: states/<dataset>/<seq> in the lake.

    Raises ExportError for a table or seq that is not in the lake, a table without a key, and an output folder that is
    not empty.
    """
    exports = lake.ledger.committed(lake.id)
    dataset = _require_exported(table, seq, lake.ledger.exported_upto(lake.id), exports)
    if plan(dataset, exports, [], seq) is None:
        raise ExportError(f"table {table} has no key as of seq {seq}, so it has no state; read its changes instead")
    output = (output or lake.folder.path / OUTPUTS / dataset / str(seq)).absolute()
    with unfit(output, ANOTHER):
        if output.exists() and (found := sorted(entry.name for entry in output.iterdir())):
            raise TargetUnfit(f"{output} holds {found[0]}; name a folder that is new or empty")
    return Wanted(dataset, seq, output)


def as_of(spark: SparkSession, lake: Lake, wanted: Wanted) -> Published:
    """Write it, from the newest version that is not newer than the seq, or from the changes alone.

    Raises ExportError, and then leaves no files.
    """
    exports = lake.ledger.committed(lake.id)
    while True:
        kept = StateLedger(lake.ledger, lake.id).committed(wanted.dataset)
        folding = plan(wanted.dataset, exports, kept, wanted.seq)
        assert folding is not None, wanted  # noqa: S101  `wanted` has checked it
        try:
            return _written(spark, lake, folding, wanted.output)
        except ExportError:
            kept = StateLedger(lake.ledger, lake.id).committed(wanted.dataset)
            if folding.base is None or folding.base in kept:
                raise  # else an exporter has dropped the base while we read it


def _written(spark: SparkSession, lake: Lake, folding: Folding, output: Path) -> Published:
    base = base_folder(lake, folding)
    with _staging(output) as staging:
        folded = fold(spark, lake.root, base, folding, staging)
        files = hand_over(output, folding.seq, folded, base)
    return published(folding, folded, files)


def _require_exported(table: str, seq: int, upto: int, exports: Sequence[Mapping[str, Any]]) -> str:
    schema, _, name = table.partition(".")
    dataset = layout.dataset(schema, name)
    if not schema or not name:
        raise ExportError(f"table {table} has no schema; write schema.table")
    if not any(dataset in export["schemas"] for export in exports):
        raise ExportError(f"table {table} is not in the lake; name one that has been exported")
    if not 0 < seq <= upto:
        raise ExportError(f"seq {seq} is not in the lake, which holds 1 to {upto}; name one of those, or export more")
    return dataset


@contextmanager
def _staging(output: Path) -> Iterator[Path]:
    """A folder in `output` for unfinished files; after an error neither of the two is left."""
    staging = output / layout.STAGING
    with unfit(output, ANOTHER):
        staging.mkdir(parents=True)
    try:
        yield staging
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)
        raise
    shutil.rmtree(staging, ignore_errors=True)
