"""The data source `sequin_events`: `spark.read.format("sequin_events").option(…).load()`."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
from adbc_driver_postgresql import dbapi
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_sequin_events import catalog
from pyspark_sequin_events.frame import struct
from pyspark_sequin_events.history import Version
from pyspark_sequin_events.query import EVENTS, changes_of, events_of
from pyspark_sequin_events.reading import Read, batches

ROWS_PER_PARTITION = 250_000
"""Seqs that one statement reads, in a second or less."""
MOST_PARTITIONS = 10_000
"""With more partitions than this, they are made by counting events: seqs of a legacy table may be times."""
OPTIONS = ("dsn", "events_table", "table", "version", "after", "upto", "rows_per_partition")


class SequinEvents(DataSource):
    """Reads an events table in ranges of seq, each with one short statement, in parallel.

    Options:

    - `dsn`: libpq's, of the pipeline database; default: the environment's PIPELINE_DATABASE_DSN.
    - `events_table`: default `public.sequin_events`.
    - `table`: `schema.table` at the source. With it, rows are that table's changes with its columns in their own
      types; without it, they are the events as they are, JSON as text.
    - `version`: schema version of that table, default the newest; only changes of that version are read.
    - `after`, `upto`: seqs, the first excluded, the second included; default: from the oldest event that retention has
      kept to the newest, both when the read is planned.
    - `rows_per_partition`: seqs that one statement reads, default 250000.

    Raises ValueError for a wrong option, a table that was never seen, and a range of which retention has dropped a
    part, before it is read or meanwhile.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._dsn = options.get("dsn") or os.environ.get("PIPELINE_DATABASE_DSN", "")
        if not self._dsn:
            raise ValueError("sequin_events: option dsn is missing, and PIPELINE_DATABASE_DSN is not set")
        self._events_table = options.get("events_table", "public.sequin_events")
        if self._events_table.count(".") != 1:
            raise ValueError(f"sequin_events: option events_table is {self._events_table!r}, expected schema.table")
        self._table: tuple[str, str] | None = None
        self._version: Version | None = None
        if "table" in options:
            self._table, self._version = self._chosen(options["table"])

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "sequin_events"

    def schema(self) -> StructType:
        """Columns of the table's version, or of the events table."""
        return struct(self._version.schema if self._version else EVENTS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader: plans partitions on the driver, reads on executors."""
        after = self._number("after", -1)
        upto = self._number("upto", -1)
        step = self._number("rows_per_partition", ROWS_PER_PARTITION)
        if step < 1:
            raise ValueError("sequin_events: option rows_per_partition must be at least 1")
        with self._database() as connection:
            kept_after = catalog.dropped_below(connection, self._events_table) - 1
            if "after" not in self.options:
                after = kept_after
            _require_kept(self._events_table, after, kept_after)
            if upto < 0:
                upto = catalog.head(connection, self._events_table)
            parts = list(catalog.ranges(connection, self._events_table, (after, upto), step, MOST_PARTITIONS))
        return _Reader(self._events_table, self._read(after, upto), parts)

    def _read(self, after: int, upto: int) -> Read:
        if self._version is None or self._table is None:
            query = events_of(self._events_table)
            return Read(self._dsn, query, query, EVENTS, after, upto)
        query, careful = (
            changes_of(self._events_table, *self._table, self._version, careful=careful) for careful in (False, True)
        )
        return Read(self._dsn, query, careful, self._version.schema, after, upto)

    def _chosen(self, table: str) -> tuple[tuple[str, str], Version]:
        with self._database() as connection:
            found = catalog.named(connection, table)
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
        number = self._number("version", len(versions))
        if not 1 <= number <= len(versions):
            raise ValueError(
                f"sequin_events: option version is {number}, but table {table} has versions 1 to {len(versions)}"
            )
        return found[0], versions[number - 1]

    @contextmanager
    def _database(self) -> Iterator[dbapi.Connection]:
        try:
            with catalog.connect(self._dsn) as connection:
                yield connection
        except dbapi.Error as error:
            raise ValueError(f"sequin_events: the pipeline database refused: {' '.join(str(error).split())}") from error

    def _number(self, option: str, default: int) -> int:
        text = self.options.get(option)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"sequin_events: option {option} is {text!r}, expected a whole number") from None


class _Reader(DataSourceReader):
    def __init__(self, events_table: str, read: Read, parts: list[tuple[int, int]]) -> None:
        self._events_table = events_table
        self._all = read
        self._parts = parts

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(bounds) for bounds in self._parts or [(0, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        after, upto = partition.value
        yield from batches(replace(self._all, after=after, upto=upto))
        # Retention records a drop before it deletes the first row: if this holds, the read missed none.
        if upto > after:
            with catalog.connect(self._all.dsn) as connection:
                kept_after = catalog.dropped_below(connection, self._events_table) - 1
            _require_kept(self._events_table, after, kept_after)


def _require_kept(events_table: str, after: int, kept_after: int) -> None:
    if after < kept_after:
        raise ValueError(
            f"sequin_events: seq {after + 1} to {kept_after} of {events_table} were dropped by retention; read from "
            f"option after {kept_after} on, or leave it out"
        )
