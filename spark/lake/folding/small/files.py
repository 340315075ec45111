"""Writes each bucket of a small fold as a complete and durable Parquet file."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lake.folding.small.new_rows import NewRows
from lake.states import file_form
from lake.states.fold_tasks import WrittenBucket
from lake.states.plan import STATE, StateColumn
from lake.states.schema_cast import column
from lake.storage.new_file import FileTarget, new_file
from pyspark_sequin_events.reading import arrow_schema


def bucket(record_pk: str | None, buckets: int) -> int:
    """Return the bucket of a row as lake.states.fold.bucket does; 0 for a row without a key."""
    return zlib.crc32(record_pk.encode()) % buckets if record_pk is not None else 0


def write(rows: NewRows, columns: Sequence[StateColumn], buckets: int, target: FileTarget) -> list[WrittenBucket]:
    """Write the rows, sorted by key, one file for each bucket that has rows."""
    keys = rows.held.table.column("record_pk").take(pa.array(rows.places, pa.int64()))
    order = pa.table({"record_pk": keys, "number": pa.array(range(len(rows.places)), pa.int64())})
    if buckets > 1:
        order = order.append_column("bucket", pa.array([bucket(key, buckets) for key in keys.to_pylist()], pa.int32()))
    else:
        order = order.append_column("bucket", pa.array([0] * len(keys), pa.int32()))
    order = order.sort_by([("bucket", "ascending"), ("record_pk", "ascending")])
    numbers, found = order.column("number").to_pylist(), order.column("bucket").to_pylist()
    del order, keys
    written, start = [], 0
    while start < len(numbers):
        end = start + 1
        while end < len(numbers) and found[end] == found[start]:
            end += 1
        table = _table(rows, numbers[start:end], columns)
        written.append(_write(table, found[start], target))
        start = end
    return written


def empty(columns: Sequence[StateColumn], target: FileTarget) -> WrittenBucket:
    """Write a file without rows, so that readers find the schema."""
    return _write(_schema(columns).empty_table(), 0, target)


def _schema(columns: Sequence[StateColumn]) -> pa.Schema:
    return arrow_schema({**STATE, **{each.name: each.type for each in columns}})


def _table(rows: NewRows, numbers: Sequence[int], columns: Sequence[StateColumn]) -> pa.Table:
    """Return the rows with these numbers, in this order, with the columns that readers see."""
    table = rows.held.table
    places = [rows.places[number] for number in numbers]
    filled = [at for at, number in enumerate(numbers) if number in rows.instead]
    own = pa.array(places, pa.int64())
    arrays = [table.column(name).take(own) for name in ("record_pk", "seq", "committed_at")]
    arrays.append(pa.chunked_array([_exact(rows, numbers, columns)]))
    for each in columns:
        others = {at: rows.instead[numbers[at]] for at in filled if each.number in rows.instead[numbers[at]]}
        if others:
            taken: list[int | None] = list(places)
            for at, instead in others.items():
                taken[at] = instead[each.number]
            arrays.append(table.column(column(each.number)).take(pa.array(taken, pa.int64())))
        else:
            arrays.append(table.column(column(each.number)).take(own))
    return pa.table(arrays, schema=_schema(columns))


def _exact(rows: NewRows, numbers: Sequence[int], columns: Sequence[StateColumn]) -> pa.Array:
    """Return `exact` as it is stored: JSON, under the names of the columns; null if it is empty."""
    texts = rows.held.texts
    if not texts:
        return pa.nulls(len(numbers), pa.string())
    names = {each.number: each.name for each in columns}
    made: list[str | None] = []
    for number in numbers:
        instead = rows.instead.get(number, {})
        found = {name: text for name, text in texts.get(rows.places[number], {}).items() if name not in instead}
        for name, place in instead.items():
            if place is not None and name in texts.get(place, {}):
                found[name] = texts[place][name]
        named = {names[name]: text for name, text in found.items()}
        made.append(json.dumps(named, ensure_ascii=False, separators=(",", ":")) if named else None)
    return pa.array(made, pa.string())


def _write(table: pa.Table, number: int, target: FileTarget) -> WrittenBucket:
    wide = max(1, table.nbytes // max(1, table.num_rows))
    with new_file(target) as made:
        pq.write_table(
            table,
            made.path,
            row_group_size=max(1, min(file_form.GROUP_ROWS, file_form.GROUP_BYTES // wide)),
            **file_form.options(),
        )
        finished = made.finish()
    return WrittenBucket(number, finished.at, table.num_rows, finished.bytes, finished.sha256)
