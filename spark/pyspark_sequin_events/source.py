"""The data source `sequin_events`: `spark.read` and `spark.readStream`, `.format("sequin_events").option(…).load()`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from pyspark_sequin_events import catalog
from pyspark_sequin_events.conditions import bounds, filter_condition
from pyspark_sequin_events.database import open_database, require_kept
from pyspark_sequin_events.frame import spark_schema
from pyspark_sequin_events.options import SourceOptions
from pyspark_sequin_events.reading import read_kept
from pyspark_sequin_events.selection import ChosenTable, ReadSelection

ROWS_PER_PARTITION = 250_000
"""Seqs that one statement reads, in a second or less."""
MOST_PARTITIONS = 10_000
"""The most partitions of equal width in seq. Beyond, events are counted: seqs of a legacy table may be times."""


class SequinEvents(DataSource):
    """Reads an events table in ranges of seq, each with one short statement, in parallel.

    Options, of which case and underscores do not matter:

    - `dsn`: the libpq DSN of the pipeline database, without a password; default: PIPELINE_DATABASE_DSN.
    - `eventsTable`: default `public.sequin_events`.
    - `table`: `schema.table` at the source. With this option, rows are that table's changes, and its columns have their
      own types; without this option, rows are the events as they are, with JSON as text.
    - `version`: schema version of that table, default the newest; only changes of that version are read.
    - `tables` (patterns `schema.table`, without `table`), `actions`, `keys`: only these events.
    - `columns`: only these columns. A schema that the user gives selects columns, too.
    - `splitKeyChanges`: an update that changed its row's key is a delete of the old key and an insert of the new one.
    - `after`, `upto`, of a batch: seqs, the first excluded, the second included; default: from the oldest event that
      retention has kept to the newest, both when the read is planned.
    - `rowsPerPartition`: seqs that one statement reads, default 250000.
    - `startingSeq`, `maxRowsPerBatch`, `consumer`, of a stream: see `StreamReader`.

    Raises ValueError for a wrong option, for a table that the server has never seen, and if retention has dropped a
    part of the range before or during the read.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = SourceOptions(options)
        table = self._options.text("table")
        self._selection = ReadSelection.from_options(self._options, None if table is None else self._chosen(table))

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "sequin_events"

    def schema(self) -> StructType:
        """Return the columns of the table's version, or of the events table."""
        return spark_schema(self._selection.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch: it plans partitions on the driver, and reads on executors."""
        self._options.refuse("startingSeq", "maxRowsPerBatch", "consumer", because="is for streams; a batch has after")
        after = self._options.number("after", -1)
        upto = self._options.number("upto", -1)
        step = self._options.number("rowsPerPartition", ROWS_PER_PARTITION, least=1)
        selection = self._selection.for_schema(schema)
        with open_database(selection.dsn) as connection:
            kept_after = catalog.dropped_below(connection, selection.events_table) - 1
            if self._options.text("after") is None:
                after = kept_after
            require_kept(selection.events_table, after, kept_after)
            if upto < 0:
                upto = catalog.head(connection, selection.events_table)
        return _Reader(selection, (after, upto), step)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of a stream: Spark calls it on the driver while the query runs."""
        try:
            from pyspark_sequin_events.stream import StreamReader
        except ImportError as error:
            raise ValueError(
                f"sequin_events: a stream needs PySpark 4.2 or newer, not {pyspark.__version__}; upgrade it"
            ) from error
        self._options.refuse("after", "upto", because="is for batches; a stream has startingSeq")
        step = self._options.number("rowsPerPartition", ROWS_PER_PARTITION, least=1)
        return StreamReader(self._selection.for_schema(schema), self._options, step, MOST_PARTITIONS)

    def _chosen(self, table: str) -> ChosenTable:
        with open_database(self._options.dsn) as connection:
            found = catalog.find_tables(connection, table)
            versions = catalog.history(connection, *found[0]) if len(found) == 1 else []
        if not found:
            raise ValueError(
                f"sequin_events: option table is {table!r}, which is in no event; expected schema.table as the source "
                "has it, without quotes"
            )
        if len(found) > 1:
            raise ValueError(
                f"sequin_events: option table is {table!r}, which may mean any of {found}; rename one of them"
            )
        number = self._options.number("version", len(versions))
        if not 1 <= number <= len(versions):
            raise ValueError(
                f"sequin_events: option version is {number}, but table {table} has versions 1 to {len(versions)}"
            )
        return ChosenTable(*found[0], versions[number - 1])


class _OptionalPushdown:
    """A `pushFilters` method that Spark accepts even if it pushes no filters down.

    While spark.sql.python.filterPushdown.enabled is false, the default, Spark refuses a reader that overrides
    `pushFilters`. Spark compares `__func__` for that. If the setting is true, Spark calls this object.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)


class _Reader(DataSourceReader):
    def __init__(self, selection: ReadSelection, whole: tuple[int, int], step: int) -> None:
        self._selection = selection
        self._whole = whole
        self._step = step
        self.pushFilters: Any = _OptionalPushdown(self)

    def push(self, filters: list[Filter]) -> Iterator[Filter]:
        """Take the filters for which Postgres selects the same rows as Spark, and return the others."""
        for each in filters:
            condition = filter_condition(each)
            if condition is None:
                yield each
            else:
                self._selection = self._selection.where(condition)
                self._whole = bounds([each], *self._whole)

    def partitions(self) -> list[InputPartition]:
        table = self._selection.events_table
        with open_database(self._selection.dsn) as connection:
            parts = list(catalog.ranges(connection, table, self._whole, self._step, MOST_PARTITIONS))
        return [InputPartition(part) for part in parts or [(0, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from read_kept(self._selection.events_table, self._selection.range_read(*partition.value))
