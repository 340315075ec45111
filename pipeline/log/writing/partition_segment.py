"""A segment: tables with the columns of the events table, which one transaction fills with whole source transactions.

That transaction creates, fills and indexes the tables and stores the progress, so a crash leaves all of the segment or
nothing, and a reader whose snapshot has one row of it has all rows before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow

from pipeline.log import partitions
from pipeline.log.staging.batch import ChangeBatch
from pipeline.log.staging.progress import with_progress
from pipeline.log.table import EventsTable
from pipeline.log.writing import event_rows
from pipeline.log.writing.partition_run import PartitionRun
from pipeline.postgres.pipelined_copy import Answer, OpenCopy
from pipeline.postgres.queries import literals, statement

_COLUMNS = ", ".join(event_rows.COLUMNS)
_PACKAGE = "log.writing"


@dataclass
class _Table:
    """A table of the segment, with seq and commit LSN of its first and last row.

    `ends`: the table ends with a whole transaction. `is_finished`: it has its indexes.
    """

    name: sql.Identifier
    first_seq: int
    last_seq: int
    first_lsn: int
    last_lsn: int
    ends: bool = True
    is_finished: bool = False

    @property
    def rows(self) -> int:
        return self.last_seq - self.first_seq + 1


@dataclass
class _SegmentContent:
    """The tables so far. `position`, `commit_lsn`, `committed_at`: the progress with their last whole transaction."""

    next_seq: int
    tables: list[_Table] = field(default_factory=list)
    relations: set[int] = field(default_factory=set)
    position: int = 0
    commit_lsn: int | None = None
    committed_at: int | None = None
    transactions: int = 0

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    def copy(self) -> _SegmentContent:
        return replace(self, tables=[replace(table) for table in self.tables], relations=set(self.relations))


class PartitionSegment:
    """A segment that is filled on the worker's connection, which it occupies until `commit` or `abandon`."""

    def __init__(
        self, connection: AsyncConnection[TupleRow], table: EventsTable, run: PartitionRun, largest: int
    ) -> None:
        """`largest`: the most rows of a table; it may be raised for later tables."""
        self._connection = connection
        self._copy = OpenCopy(connection)
        self._table, self.run = table, run
        self.largest = largest
        self._filled = _SegmentContent(run.next_seq)
        self._kept: _SegmentContent | None = None

    @property
    def rows(self) -> int:
        """The rows of the segment so far."""
        return self._filled.rows

    @property
    def open_rows(self) -> int:
        """The rows of its last table, 0 once that has its indexes."""
        last = self._filled.tables[-1] if self._filled.tables else None
        return 0 if last is None or last.is_finished else last.rows

    @property
    def first_seq(self) -> int:
        """The seq of the first row."""
        return self.run.next_seq

    @property
    def next_seq(self) -> int:
        """The seq of the next row."""
        return self._filled.next_seq

    @property
    def is_inside(self) -> bool:
        """True if the segment ends with an incomplete transaction."""
        return self._kept is not None

    async def begin(self) -> None:
        """Begin the transaction."""
        await self._copy.execute("BEGIN; set local synchronous_commit = on")

    @property
    def session(self) -> OpenCopy:
        """The session for queries inside of the transaction."""
        return self._copy

    async def ask(self, query: str) -> Answer:
        """Run a query inside of the transaction."""
        return await self._copy.execute(query)

    async def add(self, batch: ChangeBatch, events: Sequence[bytes]) -> None:
        """Add a batch of whole transactions, or of a part of one; `events`: its rows.

        If `is_inside`, the batch continues the incomplete transaction.
        """
        if batch.position is None and self._kept is None:
            await self._copy.execute("savepoint inside")
            self._kept = self._filled.copy()
        filled = self._filled
        if events:
            await self._write(batch, events)
            filled.relations |= event_rows.relations_of(batch.rows)
        if batch.position is not None:
            filled.position, filled.commit_lsn, filled.committed_at = (
                batch.position,
                batch.commit_lsn,
                batch.committed_at,
            )
            filled.transactions += batch.transactions
            if self._kept is not None:
                await self._copy.execute("release savepoint inside")
                self._kept = None
                filled.tables[-1].ends = True

    async def _write(self, batch: ChangeBatch, events: Sequence[bytes]) -> None:
        tables, seq = self._filled.tables, self._filled.next_seq
        if not tables or tables[-1].is_finished or tables[-1].rows + len(events) > self.largest:
            if tables:
                tables[-1].ends = tables[-1].last_lsn != batch.first_lsn
                await self._finish(tables[-1])
            tables.append(_Table(await self._make(seq), seq, seq - 1, batch.first_lsn, batch.first_lsn))
        table = tables[-1]
        copy = sql.SQL("copy {} ({}) from stdin (format binary)").format(table.name, sql.SQL(_COLUMNS))
        await self._copy.write(copy.as_string(), events)
        table.last_seq += len(events)
        table.last_lsn = batch.last_lsn
        table.ends = batch.position is not None
        self._filled.next_seq += len(events)

    async def back(self) -> None:
        """Undo the rows of an incomplete transaction."""
        if self._kept is not None:
            await self._copy.execute("rollback to savepoint inside")
            self._filled, self._kept = self._kept, None

    async def commit(self, *, attaches: bool) -> int | None:
        """Commit durably, and return the position up to which all is stored; None if a newer worker has taken over.

        With `attaches` the segment is finished, and its tables become partitions; otherwise its rows will be moved. It
        must not end with an incomplete transaction.
        """
        values = self._values(attaches=attaches)
        found = await self._copy.execute(with_progress(_PACKAGE, "commit_tables") % literals(**values))
        if not found:
            await self.abandon()
            return None
        await self._copy.execute("COMMIT")
        self.run.may_continue = self.run.may_continue and found[0][0] == b"t"
        self.run.next_seq = self._filled.next_seq
        return self._filled.position

    async def finish(self) -> None:
        """Give all of its tables their indexes; later rows get another table.

        The segment must not end with an incomplete transaction.
        """
        for table in self._filled.tables:
            await self._finish(table)

    async def abandon(self) -> None:
        """Roll back the segment."""
        await self._copy.abort()

    def _values(self, *, attaches: bool) -> dict[str, Any]:
        filled, tables = self._filled, self._filled.tables
        return {
            "source": self.run.source,
            "worker": self.run.worker,
            "generation": self.run.generation,
            "run": self.run.number,
            "epoch": self.run.epoch,
            "name": str(self._table),
            "attaches": attaches,
            "position": filled.position,
            "commit_lsn": filled.commit_lsn,
            "committed_at": filled.committed_at,
            "open_lsn": None,
            "open_changes": 0,
            "rows": self.rows,
            "transactions": filled.transactions,
            "names": [table.name.as_string() for table in tables],
            "ends": [table.ends for table in tables],
            "first_seqs": [table.first_seq for table in tables],
            "last_seqs": [table.last_seq for table in tables],
            "first_lsns": [table.first_lsn for table in tables],
            "last_lsns": [table.last_lsn for table in tables],
            "relations": sorted(filled.relations),
        }

    async def _make(self, first_seq: int) -> sql.Identifier:
        name = sql.Identifier("pipeline", f"{partitions.stem(self._table)}_{first_seq:012d}_{self.run.tag}")
        events = sql.Literal(self._table.identifier.as_string())
        text = sql.SQL(statement(_PACKAGE, "make_table")).format(table=name, events=events)
        await self._copy.execute(text.as_string())
        return name

    async def _finish(self, table: _Table) -> None:
        if not table.is_finished:
            table.is_finished = True
            names = {"first": sql.Literal(table.first_seq), "last": sql.Literal(table.last_seq)}
            text = sql.SQL(statement(_PACKAGE, "finish_table")).format(table=table.name, **names)
            await self._copy.execute(text.as_string())
