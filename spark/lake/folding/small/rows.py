"""Reads rows of files into memory, under the column names of the fold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from lake.folding.small.log import ChangeLog, TableTooLargeError, columns_in
from lake.states.fold_tasks import FoldBase
from lake.states.plan import STATE, BucketFile, StateColumn, own_columns
from lake.states.schema_cast import column
from lake.storage.reading import parquet
from lake.storage.where import LakePath
from pyspark_sequin_events.types import arrow_type

ExactTexts = dict[int, dict[int, str]]
"""The texts of `exact`: by the index of a row, then by the number of a column."""
_OURS = ("record_pk", "seq", "committed_at")


@dataclass(frozen=True)
class FoldRows:
    """Rows in memory. `table`: record_pk, seq, committed_at, then c0, c1, … by number; `texts`: those of `exact`."""

    table: pa.Table
    texts: ExactTexts


def no_rows(wanted: Sequence[StateColumn]) -> FoldRows:
    """Return no rows, with these columns."""
    ours = [(name, arrow_type(STATE[name])) for name in _OURS]
    return FoldRows(
        pa.schema([*ours, *((column(each.number), arrow_type(each.type)) for each in wanted)]).empty_table(), {}
    )


def join_rows(parts: Iterable[FoldRows], wanted: Sequence[StateColumn], most: int = 1 << 62) -> FoldRows:
    """Join the rows of all parts, in order. Raises TableTooLargeError if they take more than `most` bytes."""
    tables, texts = [no_rows(wanted).table], {}
    rows = size = 0
    for part in parts:
        texts.update({rows + place: entries for place, entries in part.texts.items()})
        tables.append(part.table)
        rows += part.table.num_rows
        size += part.table.nbytes
        if size > most:
            raise TableTooLargeError
    return FoldRows(pa.concat_tables(tables), texts)


def rows_of_changes(
    log: ChangeLog, wanted: Sequence[int], columns: Sequence[StateColumn], most: int
) -> tuple[FoldRows, dict[int, int]]:
    """Read the rows that these changes wrote, and return the place of each. Raises TableTooLargeError."""
    held = log.changes.select(["part", "row"]).take(pa.array(wanted, pa.int64()))
    held = held.append_column("change", pa.array(wanted, pa.int64())).sort_by(
        [("part", "ascending"), ("row", "ascending")]
    )
    places = {change: place for place, change in enumerate(held.column("change").to_pylist())}
    parts = zip(held.column("part").to_pylist(), held.column("row").to_pylist(), strict=True)
    by_part = ((log.parts[part], [row for _, row in group]) for part, group in groupby(parts, key=lambda pair: pair[0]))

    def read() -> Iterable[FoldRows]:
        for part, rows in by_part:
            with parquet(part.path) as file:
                had = own_columns(part.source.columns)
                names = {name: had[name] for name in part.reading.numbers if name in had}
                found = columns_in(file, part.group, {**STATE, **names})
            yield _unified(found.take(pa.array(rows, pa.int64())), part.reading.numbers, columns)

    return join_rows(read(), columns, most), places


def rows_of_base(base: FoldBase, files: Sequence[BucketFile], columns: Sequence[StateColumn], most: int) -> FoldRows:
    """Read the rows in files of a base. Raises TableTooLargeError."""
    numbers = {each.name: each.number for each in base.columns}
    kept = {each.number for each in columns}
    names = {each.name: each.type for each in base.columns if each.number in kept}
    paths = [base.folder / file.name for file in files]
    if sum(_bytes(path) for path in paths) > most:
        raise TableTooLargeError

    def read() -> Iterable[FoldRows]:
        for path in paths:
            with parquet(path) as file:
                for group in range(file.num_row_groups):
                    yield _unified(columns_in(file, group, {**STATE, **names}), numbers, columns)

    return join_rows(read(), columns, most)


def retype_rows(rows: FoldRows, columns: Sequence[StateColumn]) -> FoldRows:
    """Return the rows with exactly these columns: values are cast, and missing values are null."""
    numbers = {name: int(name[1:]) for name in rows.table.column_names if name not in _OURS}
    kept = {each.number for each in columns}
    table = rows.table.append_column("exact", pa.nulls(rows.table.num_rows, pa.string()))
    texts = {place: {n: text for n, text in held.items() if n in kept} for place, held in rows.texts.items()}
    return FoldRows(_unified(table, numbers, columns).table, texts)


def _bytes(path: LakePath) -> int:
    """Return a lower bound of the bytes that a file takes in memory: it may store equal values once."""
    with parquet(path) as file:
        groups = file.metadata
    return sum(groups.row_group(number).total_byte_size for number in range(groups.num_row_groups))


def _unified(table: pa.Table, numbers: Mapping[str, int], wanted: Sequence[StateColumn]) -> FoldRows:
    """Return rows of files as rows of the fold. The types of `wanted` hold all values of the files' types."""
    names = {number: name for name, number in numbers.items()}
    columns = {name: table.column(name) for name in _OURS}
    for each in wanted:
        name, kind = names.get(each.number), arrow_type(each.type)
        is_there = name is not None and name in table.column_names
        columns[column(each.number)] = (
            table.column(name).cast(kind) if is_there else pa.chunked_array([pa.nulls(table.num_rows, kind)])
        )
    kept = {each.number for each in wanted}
    known = {name: number for name, number in numbers.items() if number in kept}
    return FoldRows(pa.table(columns), _texts(table.column("exact"), known))


def _texts(exact: pa.ChunkedArray, numbers: Mapping[str, int]) -> ExactTexts:
    if exact.null_count == len(exact):
        return {}
    parsed = ((place, json.loads(text)) for place, text in enumerate(exact.to_pylist()) if text is not None)
    return {place: {numbers[name]: text for name, text in found.items() if name in numbers} for place, found in parsed}
