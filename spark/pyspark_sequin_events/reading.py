"""Reads Arrow batches of a range of seq from Postgres, with one short statement. Runs on executors."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_sequin_events import catalog
from pyspark_sequin_events.database import open_database, require_kept
from pyspark_sequin_events.query import in_range
from pyspark_sequin_events.types import arrow_type

_FIRST_TIME = -211_000_000_000_000_000
"""Microseconds; Postgres's first time is later, in 4714 BC. The driver adds 30 years to an infinity, which wraps."""
_LATE_TIME = 9_223_371_244_800_000_000
"""Microseconds: 294247-01-01. Neither query puts a later time into a column."""
_FIRST_DAY = -2_451_000
"""Days, before the first date of Postgres."""


@dataclass(frozen=True)
class RangeRead:
    """A read of the rows of `query` with after < seq <= upto. `schema`: its columns (name → type, as in Spark's DDL).

    `careful` is the same query without the values that their types cannot hold. If `query` returns no seq, or several
    rows with one seq, `careful` must be the same text. `order`: the SQL of the order of the rows, seq first.
    """

    dsn: str
    query: str
    careful: str
    schema: Mapping[str, str]
    after: int
    upto: int
    order: str = "seq"


def arrow_schema(schema: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow schema of a dataset."""
    return pa.schema([pa.field(name, arrow_type(spark)) for name, spark in schema.items()])


def read_batches(read: RangeRead) -> Iterator[pa.RecordBatch]:
    """Read the rows in order of seq, in batches of about 16 MB, with one statement, whose snapshot ends with it.

    A batch with a value that its type cannot hold (a date of infinity) is read again with `careful`. For that, the
    first connection is closed and another opened, so the rows after the batch are read with a further statement.
    """
    target, after = arrow_schema(read.schema), read.after
    while after < read.upto:
        unfit = None
        with closing(_fetch(read, read.query, after, read.upto)) as fetched:
            for batch in fetched:
                if any(_unfit(column, field.type) for column, field in zip(batch.columns, target, strict=True)):
                    unfit = after, pc.max(batch.column("seq")).as_py()
                    break
                yield _convert(batch, target)
                if "seq" in target.names:
                    after = batch.column("seq")[-1].as_py()
        if unfit is None:
            return
        for part in _fetch(read, read.careful, *unfit):
            yield _convert(part, target)
        after = unfit[1]


def read_kept(events_table: str, read: RangeRead) -> Iterator[pa.RecordBatch]:
    """Read the rows as `read_batches` does. Raises ValueError if retention dropped some before they were read."""
    yield from read_batches(read)
    # Retention records a drop before it deletes the first row: if this holds, the read missed none.
    if read.upto > read.after:
        with open_database(read.dsn) as connection:
            kept_after = catalog.dropped_below(connection, events_table) - 1
        require_kept(events_table, read.after, kept_after)


def _fetch(read: RangeRead, query: str, after: int, upto: int) -> Generator[pa.RecordBatch, None, None]:
    with catalog.connect(read.dsn) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(in_range(query, after, upto, read.order))
        yield from cursor.fetch_record_batch()


def _convert(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    columns = [_cast(column, field.type) for column, field in zip(batch.columns, target, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _cast(column: pa.Array, to: pa.DataType) -> pa.Array:
    column = _plain(column)
    if column.type == to:
        return column
    if pa.types.is_list(to):
        return pa.ListArray.from_arrays(
            column.offsets, _cast(column.values, to.value_type), type=to, mask=column.is_null()
        )
    return column.cast(to)


def _plain(column: pa.Array) -> pa.Array:
    """Return the text in an array of the extension types that the driver makes of numeric and json."""
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def _unfit(column: pa.Array, to: pa.DataType) -> bool:
    column = _plain(column)
    if pa.types.is_timestamp(to):
        bounds = pc.min_max(column.cast(pa.int64())).as_py()
        return bounds["min"] is not None and (bounds["min"] < _FIRST_TIME or bounds["max"] >= _LATE_TIME)
    if pa.types.is_date32(to):
        low = pc.min(column.cast(pa.int32())).as_py()
        return low is not None and low < _FIRST_DAY
    if pa.types.is_decimal(to):
        return bool(pc.any(pc.equal(column, "nan")).as_py())
    return False
