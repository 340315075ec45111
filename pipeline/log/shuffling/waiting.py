"""List tables that wait to become partitions, and present them as segments whose rows the shuffler moves."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import psycopg
from psycopg import sql

from pipeline.log.shuffling.plan import ShuffleRun
from pipeline.log.staging.segments import Segment
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_PACKAGE = "log.shuffling"
MORE = 15
"""The most waiting tables behind the next ones that are attached together with them, which costs little more."""
_FORGET_TABLE = "delete from pipeline.adopted_tables where id = %(id)s"
"""Forget a table that was moved and dropped."""
_MOVED_TABLES = """\
select id, table_name from pipeline.adopted_tables where source_id = %(source)s and state = 'moved' order by id
"""
"""List the tables whose rows were moved."""


@dataclass(frozen=True)
class WaitingTable:
    """A table that waits. LSNs are the commit LSNs of its first and last row.

    `attaches`: it has all that a partition needs. `run`: the worker's run that filled it. `ends`: it ends with a whole
    transaction; otherwise a later table does.
    """

    id: int
    events_table: str
    table_name: str
    attaches: bool
    run: int
    ends: bool
    first_seq: int
    last_seq: int
    first_lsn: int
    last_lsn: int
    relations: list[int]

    @property
    def table(self) -> sql.SQL:
        """The name of the table, which was quoted when it was stored."""
        return sql.SQL(self.table_name)

    @property
    def rows(self) -> int:
        return self.last_seq - self.first_seq + 1


@dataclass(frozen=True)
class WaitingSegment(Segment):
    """A segment with the rows of a waiting table. It shares its id with no segment of staging, and is never drained."""

    waiting: WaitingTable

    @property
    def rows(self) -> sql.Composable:
        """The query for its rows."""
        text = sql.SQL(statement(_PACKAGE, "rows_to_move"))
        return text.format(table=self.waiting.table, relations=sql.Literal(self.waiting.relations))


@dataclass(frozen=True)
class WaitingRun(ShuffleRun):
    """A run that moves the rows of waiting tables."""

    tables: tuple[WaitingTable, ...]


def read_next(connection: Connection, source: uuid.UUID) -> list[WaitingTable]:
    """Return the tables that come next in the log, up to the end of a transaction, and perhaps more behind them."""
    return queries.rows(connection, WaitingTable, statement(_PACKAGE, "next_tables"), {"source": source, "more": MORE})


def first_whole(tables: Sequence[WaitingTable]) -> list[WaitingTable]:
    """Return the first tables, up to the first one that ends with a whole transaction."""
    last = next((number for number, each in enumerate(tables) if each.ends), len(tables) - 1)
    return list(tables[: last + 1])


def first_attachable(tables: Sequence[WaitingTable]) -> list[WaitingTable]:
    """Return the tables of `first_whole`, and those behind them that one transaction may attach with them.

    Those are of the same run, have all that a partition needs, and their seqs have no gap.
    """
    attached = first_whole(tables)
    upto = len(attached)
    for before, each in pairwise(tables[upto - 1 :]):
        if not each.attaches or (each.run, each.first_seq) != (before.run, before.last_seq + 1):
            break
        attached.append(each)
        upto = len(attached) if each.ends else upto
    return attached[:upto]


def run_of(tables: Sequence[WaitingTable], after: int) -> WaitingRun:
    """Return the run that moves these tables; rows up to `after` are in the log already."""
    moving = tuple(
        WaitingSegment(-each.id, False, each.first_lsn, each.last_lsn, each.first_seq, each.rows, each)
        for each in tables
    )
    return WaitingRun(moving, after, tables[-1].last_lsn, (), tuple(tables))


def record_moved(connection: Connection, source: uuid.UUID, tables: Sequence[WaitingTable]) -> None:
    """Record that the rows of these tables are events, in the transaction that adds them."""
    values = {"source": source, "ids": [each.id for each in tables], "run": max(each.run for each in tables)}
    connection.execute(statement(_PACKAGE, "moved"), values)


def drop_moved(connection: Connection, source: uuid.UUID) -> None:
    """Drop tables whose rows were moved, each in its own transaction; tables that another session reads stay."""
    drop = sql.SQL("do $$ begin drop table if exists {}; end $$")
    for number, name in connection.execute(_MOVED_TABLES, {"source": source}).fetchall():
        try:
            with connection.transaction(), queries.lock_timeout(connection, "50ms"):
                connection.execute(drop.format(sql.SQL(name)))
                connection.execute(_FORGET_TABLE, {"id": number})
        except psycopg.errors.LockNotAvailable:
            continue
