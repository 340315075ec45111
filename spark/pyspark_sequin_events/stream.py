"""Reads a stream: `spark.readStream.format("sequin_events")`. Offsets are `{"seq": n}`, each a transaction's end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from adbc_driver_postgresql import dbapi
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_sequin_events import catalog
from pyspark_sequin_events.claim import ConsumerClaim
from pyspark_sequin_events.coverage import UncoveredEvent, first_uncovered
from pyspark_sequin_events.database import plain_errors, require_kept
from pyspark_sequin_events.options import SourceOptions
from pyspark_sequin_events.reading import read_kept
from pyspark_sequin_events.selection import ReadSelection
from pyspark_sequin_events.transactions import TransactionEnds

MAX_ROWS = 1_000_000
"""The most events that one batch covers, by default."""
_POLL_SECONDS = 0.1
"""Seconds between two reads of the head: without new events, Spark asks every 10 ms."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the log batch by batch; a batch ends at the end of a transaction.

    Options:

    - `startingSeq`, of a query without a checkpoint: the first seq; or `earliest`, the oldest that is kept; or
      `latest`, only events that are committed from now on. Default: the position of `consumer`, otherwise earliest.
    - `maxRowsPerBatch`: the most events of the log that a batch covers, before any filter, unless its first transaction
      alone has more; default 1000000.
    - `consumer`: a cursor consumer without filters. Retention keeps the events after its position, which follows the
      query, at most one batch behind. While the consumer is paused, the stream gets nothing new.

    Raises ValueError in these cases:

    - Retention has dropped the next events.
    - The log was restored and skips the query's seq.
    - Another process reads the consumer.
    - The table got columns that it did not have when the query began. A batch that ends before them comes first.
    """

    def __init__(self, selection: ReadSelection, options: SourceOptions, step: int, most_partitions: int) -> None:
        self._selection = selection
        self._starting = _starting(options)
        self._max_rows = options.number("maxRowsPerBatch", MAX_ROWS, least=1)
        self._consumer = options.text("consumer")
        self._step, self._most_partitions = step, most_partitions
        self._link: _DriverLink | None = None
        self._target: int | None = None
        self._newest: int | None = None
        self._head_read_at = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """Return what executors need to read a partition; connections and the consumer stay on the driver."""
        return {**self.__dict__, "_link": None}

    def initialOffset(self) -> dict[str, int]:
        """Return the seq after which a query without a checkpoint reads everything."""
        link, table = self._connected(), self._selection.events_table
        with plain_errors():
            kept_after = catalog.dropped_below(link.connection, table) - 1
            head = catalog.head(link.connection, table, kept_after)
        if self._starting == "latest":
            return {"seq": head}
        if isinstance(self._starting, int):
            after = self._starting - 1
        elif self._starting is None and link.claim is not None:
            after = link.claim.position
        else:
            after = kept_after
        require_kept(table, after, kept_after, f"let the query begin at startingSeq {kept_after + 1}, or at earliest")
        return {"seq": after}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch, for triggers that do not want everything at once."""
        return ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end at the current head of the log."""
        with plain_errors():
            self._target = catalog.head(self._connected().connection, self._selection.events_table)

    def reportLatestOffset(self) -> dict[str, int] | None:
        """Return the newest seq that this reader has seen, for the query's progress."""
        return None if self._newest is None else {"seq": self._newest}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the end of the next batch; `start` if there is nothing new."""
        after, link, table = int(start["seq"]), self._connected(), self._selection.events_table
        with plain_errors():
            self._require(link.connection, after)
            self._newest = head = self._head(link.connection, after)
            if self._target is not None:
                head = max(after, min(head, self._target))
            if head == after or link.is_paused():
                return start
            upto = head
            if isinstance(limit, ReadMaxRows):
                upto = TransactionEnds(link.connection, table, after, head).end_within(limit.max_rows)
            found = self._uncovered(link.connection, after, upto)
            if found is None:
                return {"seq": upto}
        if found.end_before is None:
            raise self._other_columns(found)
        return {"seq": found.end_before}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the parts of a batch, each for one task."""
        after, upto, connection = int(start["seq"]), int(end["seq"]), self._connected().connection
        with plain_errors():
            self._require(connection, after)
            found = self._uncovered(connection, after, upto)
            if found is not None:  # a batch that was planned before the query was started again
                raise self._other_columns(found)
            parts = catalog.ranges(
                connection, self._selection.events_table, (after, upto), self._step, self._most_partitions
            )
            return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a part. Runs on an executor."""
        yield from read_kept(self._selection.events_table, self._selection.range_read(*partition.value))

    def commit(self, end: dict[str, int]) -> None:
        """Move the consumer to this offset: the sink has everything up to it."""
        link = self._connected()
        if link.claim is not None:
            link.claim.advance(link.connection, int(end["seq"]))

    def stop(self) -> None:
        """Close the connections: the query has ended."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _connected(self) -> _DriverLink:
        if self._link is None:
            self._link = _DriverLink(self._selection.dsn, self._selection.events_table, self._consumer)
        return self._link

    def _head(self, connection: dbapi.Connection, after: int) -> int:
        """Return the newest seq. If it is not new, return it no sooner than _POLL_SECONDS after the last time."""
        head = catalog.head(connection, self._selection.events_table, after)
        if head == after and self._target is None:
            time.sleep(max(0.0, min(_POLL_SECONDS, self._head_read_at + _POLL_SECONDS - time.monotonic())))
            self._head_read_at = time.monotonic()
        return head

    def _require(self, connection: dbapi.Connection, after: int) -> None:
        table = self._selection.events_table
        kept_after = catalog.dropped_below(connection, table) - 1
        restart = f"begin a new query, with another checkpointLocation and startingSeq {kept_after + 1} or earliest"
        require_kept(table, after, kept_after, f"{restart}, and compare its sink with the source")
        if not self._connected().known and (before := catalog.before_jump(connection, table, after)) < after:
            raise ValueError(
                f"sequin_events: the query is at seq {after} of a log that was lost: {table} was restored, and skips "
                f"the seqs after {before}; begin a new query, with another checkpointLocation and startingSeq "
                f"{before + 1}, and compare its sink with the source"
            )
        newest = None if self._link is None or self._link.known else catalog.newest(connection, table)
        if newest is not None and after > newest:
            raise ValueError(
                f"sequin_events: the query is at seq {after}, but the newest of {table} is {newest}: this is not the "
                f"log that it has read; correct option dsn, or {restart}"
            )
        self._connected().known = True

    def _uncovered(self, connection: dbapi.Connection, after: int, upto: int) -> UncoveredEvent | None:
        if self._selection.chosen is None:
            return None
        return first_uncovered(connection, self._selection.events_table, self._selection.chosen, after, upto)

    def _other_columns(self, found: UncoveredEvent) -> ValueError:
        chosen = self._selection.chosen
        assert chosen is not None  # noqa: S101  only a table has columns
        if found.version == chosen.version.number:
            return ValueError(
                f"sequin_events: table {chosen} has more or wider columns at seq {found.seq} than at the query's "
                "start; start it again, with the same checkpointLocation"
            )
        return ValueError(
            f"sequin_events: seq {found.seq} of table {chosen} has schema version {found.version}, and this query "
            f"reads version {chosen.version.number}; start it again with option version {found.version}, and the same "
            "checkpointLocation"
        )


class _DriverLink:
    """The driver's connection, and the claim to its consumer. `known`: this is the log that the query read before."""

    known = False

    def __init__(self, dsn: str, events_table: str, consumer: str | None) -> None:
        self._opened: AbstractContextManager[dbapi.Connection] = catalog.connect(dsn)
        with plain_errors():
            self.connection = self._opened.__enter__()
        try:
            self.claim = None if consumer is None else ConsumerClaim(dsn, consumer, events_table)
        except BaseException:
            self._opened.__exit__(None, None, None)
            raise

    def is_paused(self) -> bool:
        """Return True if the consumer is paused."""
        return self.claim is not None and self.claim.is_paused(self.connection)

    def close(self) -> None:
        """Release the consumer, and close the connection."""
        try:
            if self.claim is not None:
                self.claim.release()
        finally:
            self._opened.__exit__(None, None, None)


def _starting(options: SourceOptions) -> int | str | None:
    """Return the value of startingSeq: a seq, `earliest` or `latest`; None if the option is not set."""
    text = options.text("startingSeq")
    if text is None or text in ("earliest", "latest"):
        return text
    if not text.isdecimal():
        raise ValueError(f"sequin_events: option startingSeq is {text!r}, expected a seq, earliest or latest")
    return int(text)
