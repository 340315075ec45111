"""Attach waiting tables as partitions, in their order, in the transaction that moves the watermark."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence

import psycopg
from psycopg import sql

from pipeline.log.shuffling import waiting
from pipeline.log.shuffling.transfer import LogWatermark, TransferFactory
from pipeline.log.shuffling.waiting import WaitingRun, WaitingTable
from pipeline.log.staging.choose_path import PathReason, WritePath
from pipeline.log.table import EventsTable
from pipeline.log.table_shape import COLUMNS
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)

LOCK_TIMEOUT = "500ms"
"""The limit for locks that attach a table. Readers and writers of the events table do not conflict with them."""
TRY_EVERY = 0.5
"""Seconds between two tries while a lock prevents attaching."""
_PACKAGE = "log.shuffling"
_NEWEST_JUMP = "select max(after) from pipeline.seq_jumps where events_table = %(name)s"
"""Read the first seq behind all jumps of an events table; null if it has none."""


class TableAttacher:
    """Attaches the tables that come next, or returns a run that moves their rows instead."""

    def __init__(self, connection: Connection, source: uuid.UUID, transfers: TransferFactory) -> None:
        self._connection = connection
        self._source = source
        self._transfers = transfers
        self._try_at = 0.0

    def step(self, epoch: int, after: int) -> int | WaitingRun:
        """Attach the next tables after `after`; returns the number of their events, -1 while a lock prevents it.

        If they cannot be attached, returns the run that moves their rows.
        """
        found = waiting.read_next(self._connection, self._source)
        if not found:
            return -1
        tables = waiting.first_attachable(found)
        reason = self._reason(tables, after)
        if reason is not None and len(tables) > len(first := waiting.first_whole(found)):
            tables, reason = first, self._reason(first, after)
        if reason is not None:
            self._count(WritePath.STAGED, PathReason.ADOPTION, sum(each.rows for each in tables))
            fields = {
                "action": "shuffle.not_attached",
                "tables": [each.table_name for each in tables],
                "reason": reason,
            }
            logger.debug("rows of a backlog are moved: %s", reason, extra=fields)
            return waiting.run_of(tables, after)
        if time.monotonic() < self._try_at:
            return -1
        try:
            return self._attach(tables, epoch, after)
        except psycopg.errors.LockNotAvailable:
            self._transfers.forget()
            self._held_up(tables)
            return -1

    def _reason(self, tables: Sequence[WaitingTable], after: int) -> str | None:
        """Return the reason why the tables cannot be attached; None if they can."""
        default = self._transfers.default
        if not all(each.attaches for each in tables):
            return "too few for a partition, or behind some that were moved"
        if tables[0].first_lsn <= after or tables[0].events_table != str(default):
            return "a part of them is moved"
        if self._transfers.has_routes:  # since they were filled
            return "there are routes"
        return self._unfit() or self._overtaken(tables)

    def _overtaken(self, tables: Sequence[WaitingTable]) -> str | None:
        """Return the reason why the tables' seqs are not free; None if they are."""
        table = self._transfers.default
        name = {"table": table.identifier.as_string(self._connection)}
        taken = self._connection.execute(statement("log", "list_partitions"), name).fetchall()
        if any(lower <= tables[-1].last_seq and tables[0].first_seq < upper for *_, lower, upper in taken):
            return "a partition has their seqs"
        jumped = queries.value(self._connection, _NEWEST_JUMP, {"name": str(table)})
        if jumped is not None and tables[0].first_seq < jumped:
            return "the log has jumped over their seqs"
        newest = sql.SQL(statement("log.shuffling", "newest_seq")).format(events=table.identifier)
        seq = queries.value(self._connection, newest, {"name": str(table)})
        return "a later seq was handed out" if seq >= tables[0].first_seq else None

    def _attach(self, tables: Sequence[WaitingTable], epoch: int, after: int) -> int:
        """Attach the tables and move the watermark in one transaction, which checks under its locks that they fit."""
        with self._connection.transaction():
            transfer = self._transfers.begin(LogWatermark(epoch, after))
            with queries.lock_timeout(self._connection, LOCK_TIMEOUT):
                for each in tables:
                    self._attach_one(each, self._transfers.default)
            if self._unfit() is not None:
                raise psycopg.errors.LockNotAvailable("the events table was changed in the meantime")
            self._transfers.attached(tables[0].first_seq, tables[-1].last_seq)
            values = {"source": self._source, "ids": [each.id for each in tables]}
            self._connection.execute(statement(_PACKAGE, "attached"), values)
            self._count(WritePath.PARTITIONED, None, transfer.moved)
            transfer.finish(tables[-1].last_lsn, ())
        added = self._transfers.committed(transfer, 0)
        self._transfers.forget()
        fields = {"action": "shuffle.attached", "events": added, "tables": [each.table_name for each in tables]}
        logger.info("a backlog became partitions", extra=fields)
        return added

    def _attach_one(self, each: WaitingTable, table: EventsTable) -> None:
        names = {
            "events": table.identifier,
            "table": each.table,
            "first": sql.Literal(each.first_seq),
            "end": sql.Literal(each.last_seq + 1),
        }
        self._connection.execute(sql.SQL(statement(_PACKAGE, "attach_table")).format(**names))

    def _unfit(self) -> str | None:
        name = self._transfers.default.identifier.as_string(self._connection)
        found = queries.value(
            self._connection, statement("log.staging", "adoptable"), {"table": name, "columns": COLUMNS}
        )
        return None if found is None else str(found)

    def _count(self, path: WritePath, reason: PathReason | None, changes: int) -> None:
        values = {"source": self._source, "ways": [path], "reasons": [reason or ""], "changes": [changes]}
        self._connection.execute(statement("log.staging", "count_ways"), values)

    def _held_up(self, tables: Sequence[WaitingTable]) -> None:
        self._try_at = time.monotonic() + TRY_EVERY
        values = {
            "source": self._source,
            "events": self._transfers.default.identifier.as_string(self._connection),
            "tables": [each.table_name for each in tables],
        }
        by = queries.value(self._connection, statement(_PACKAGE, "hold_up"), values)
        logger.warning("a backlog waits to become partitions: %s", by, extra={"action": "shuffle.held_up"})
