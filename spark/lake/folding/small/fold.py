"""Folds a small table inside one task, on Arrow alone. lake.states.fold does the same with DataFrames.

The fold reads keys and actions of all changes in order of seq, then only the values that the new rows have. Both
engines make the same rows, in files that are the same to readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from lake.errors import ExportError
from lake.folding.small import files, rows
from lake.folding.small.log import ChangeLog, TableTooLargeError, read_changes
from lake.folding.small.new_rows import new_rows
from lake.folding.small.rows import FoldRows
from lake.folding.small.steps import GONE, KeySteps, trace_steps
from lake.states import rekeying
from lake.states.fold_tasks import FoldBase, FoldResult, FoldTask, fold_in_order
from lake.states.plan import BucketFile, PlannedFold, StateColumn, buckets_of, own_columns
from lake.states.schema_cast import column
from lake.storage import layout
from lake.storage.new_file import FileTarget
from lake.tables.columns import NumberedForm
from pyspark_sequin_events.types import wider

MOST_COMPRESSED = 24 * 1024 * 1024
"""A table is small if its change files have at most this many bytes."""
MOST_CHANGES = 400_000
"""The most changes of a small table: more take too much memory, however short their rows are."""


def fits(foldings: Sequence[PlannedFold]) -> bool:
    """Return True if a task can try: the changes are few, and no value gets a type that may be too narrow for it."""
    return all(folding.bytes <= MOST_COMPRESSED and _keeps_values(folding) for folding in foldings)


def fold(task: FoldTask) -> FoldResult | ExportError | None:
    """Fold a table, and write the buckets that changed. Runs on executors.

    Returns an error instead of raising it, so that only this table fails. Returns None if the table is too large for a
    task.
    """
    try:
        return fold_in_order(partial(_fold, task), task.base_folder, task.foldings, task.target)
    except TableTooLargeError:
        return None
    except ExportError as error:
        return error
    except (OSError, ValueError, pa.ArrowException) as error:
        return ExportError(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


def _keeps_values(folding: PlannedFold) -> bool:
    had: list[tuple[Mapping[int, str], Sequence[StateColumn]]] = []
    for source in folding.sources:
        if source.schema_version == layout.UNTYPED:
            return False
        types = own_columns(source.columns)
        for reading in source.readings:
            numbers = {number: types[name] for name, number in reading.numbers.items() if name in types}
            had.append((numbers, folding.columns))
    had.append(({each.number: each.type for each in folding.base_columns}, folding.columns_before))
    had.append(({each.number: each.type for each in folding.columns_before}, folding.columns))
    return all(
        each.number not in types or wider(types[each.number], each.type) == each.type
        for types, columns in had
        for each in columns
    )


def _fold(task: FoldTask, base: FoldBase | None, folding: PlannedFold, target: FileTarget) -> FoldResult:
    log = read_changes(task.root, folding, MOST_CHANGES)
    if base is not None and base.seq < log.emptied:
        base = None
    found = _steps(log)
    live = sum(1 for change in found.last.values() if change != GONE)
    buckets = buckets_of((base.rows, base.buckets) if base else None, live, task.rows_per_bucket)
    is_anew = base is None or folding.rekeyed is not None or base.columns != folding.columns
    kept: list[BucketFile] = []
    if base is not None and not is_anew and buckets == base.buckets:
        touched = {files.bucket(key, buckets) for key in found.last}
        kept = [file for file in base.files if file.bucket not in touched]
    changed = [file for file in base.files if file not in kept] if base else []
    before = _rows_before(task, base, changed, folding) if base and changed else rows.no_rows(folding.columns)
    made = new_rows(log, found, before, folding.columns, task.most_bytes)
    written = files.write(made, folding.columns, buckets, target)
    if not written and not kept:
        written = [files.empty(folding.columns, target)]
    return FoldResult(written, kept, buckets)


def _steps(log: ChangeLog) -> KeySteps:
    omitted = dict(_omitted(log))
    columns = (log.changes.column(name).to_pylist() for name in ("record_pk", "action", "previous_record_pk"))
    return trace_steps(zip(*columns, strict=True), omitted)


def _omitted(log: ChangeLog) -> Iterator[tuple[int, frozenset[int]]]:
    names = log.changes.column("unchanged_columns")
    if names.null_count == len(names):
        return
    parts, actions = log.changes.column("part"), log.changes.column("action")
    for change, left_out in enumerate(names.to_pylist()):
        if left_out and actions[change].as_py() == "update":
            numbers = log.parts[parts[change].as_py()].reading.numbers
            if found := frozenset(numbers[name] for name in left_out if name in numbers):
                yield change, found


def _rows_before(task: FoldTask, base: FoldBase, changed: Sequence[BucketFile], folding: PlannedFold) -> FoldRows:
    """Return the rows of the base, with the record_pk that the present key makes."""
    before = rows.rows_of_base(base, changed, folding.columns_before, task.most_bytes)
    if folding.rekeyed is None:
        return before
    return rows.retype_rows(_rekeyed(before, folding.rekeyed), folding.columns)


def _rekeyed(before: FoldRows, form: NumberedForm) -> FoldRows:
    """Return the rows with new keys, as rekeying.rekey_rows does."""
    table = before.table
    exact = [
        [(column(number), text) for number, text in before.texts.get(place, {}).items()]
        for place in range(table.num_rows)
    ]
    key = rekeying.key_function(form)
    columns = [table.column(column(form.numbers[name])) for name in form.form.key]
    made = key(pa.array(exact, pa.map_(pa.string(), pa.string())), *columns)
    rekeying.require_distinct(made, form)
    return FoldRows(table.set_column(table.schema.get_field_index("record_pk"), "record_pk", made), before.texts)
