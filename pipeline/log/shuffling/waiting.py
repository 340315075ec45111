"""Tables that wait to become partitions, as the shuffler finds them, and as segments whose rows it moves."""

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
"""So many that wait behind those that come next may be attached with them, which costs little more."""
_FORGET_TABLE = "delete from pipeline.adopted_tables where id = %(id)s"
"""A table that was moved is gone."""
_MOVED_TABLES = """\
select id, table_name from pipeline.adopted_tables where source_id = %(source)s and state = 'moved' order by id
"""
"""Tables whose rows were moved."""


@dataclass(frozen=True)
class WaitingTable:
    """A table; LSNs are the commit LSNs of its first and last row. `attaches`: it has all that a partition needs.

    `run`: the worker's run that has filled it; `ends`: with a transaction, else the next one does.
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
        """Its name; it was quoted when it was stored."""
        return sql.SQL(self.table_name)

    @property
    def rows(self) -> int:
        return self.last_seq - self.first_seq + 1


@dataclass(frozen=True)
class WaitingSegment(Segment):
    """Its rows as those of a segment of staging, with which it shares no id; it is never drained."""

    waiting: WaitingTable

    @property
    def rows(self) -> sql.Composable:
        """What its rows are selected from."""
        text = sql.SQL(statement(_PACKAGE, "rows_to_move"))
        return text.format(table=self.waiting.table, relations=sql.Literal(self.waiting.relations))


@dataclass(frozen=True)
class WaitingRun(ShuffleRun):
    """The run that moves the rows of these tables."""

    tables: tuple[WaitingTable, ...]


def following(connection: Connection, source: uuid.UUID) -> list[WaitingTable]:
    """The tables that come next in the log: the first whole ones, and perhaps more behind them."""
    return queries.rows(connection, WaitingTable, statement(_PACKAGE, "next_tables"), {"source": source, "more": MORE})


def first_whole(tables: Sequence[WaitingTable]) -> list[WaitingTable]:
    """The first of them, and what is needed for it to end with a transaction."""
    last = next((number for number, each in enumerate(tables) if each.ends), len(tables) - 1)
    return list(tables[: last + 1])


def together(tables: Sequence[WaitingTable]) -> list[WaitingTable]:
    """`first_whole`, and as many behind as one transaction may attach with it: those of its run, without a gap."""
    found = first_whole(tables)
    upto = len(found)
    for before, each in pairwise(tables[upto - 1 :]):
        if not each.attaches or (each.run, each.first_seq) != (before.run, before.last_seq + 1):
            break
        found.append(each)
        upto = len(found) if each.ends else upto
    return found[:upto]


def run_of(tables: Sequence[WaitingTable], after: int) -> WaitingRun:
    """The run that moves them; of what is before `after` the rows are in the log."""
    moving = tuple(
        WaitingSegment(-each.id, False, each.first_lsn, each.last_lsn, each.first_seq, each.rows, each)
        for each in tables
    )
    return WaitingRun(moving, after, tables[-1].last_lsn, (), tuple(tables))


def moved(connection: Connection, source: uuid.UUID, tables: Sequence[WaitingTable]) -> None:
    """Their rows are events. In the transaction that adds them."""
    values = {"source": source, "ids": [each.id for each in tables], "run": max(each.run for each in tables)}
    connection.execute(statement(_PACKAGE, "moved"), values)


def drop_moved(connection: Connection, source: uuid.UUID) -> None:
    """Drop tables whose rows were moved, each in its own transaction; what another session reads is left for later."""
    drop = sql.SQL("do $$ begin drop table if exists {}; end $$")
    for number, name in connection.execute(_MOVED_TABLES, {"source": source}).fetchall():
        try:
            with connection.transaction(), queries.lock_timeout(connection, "50ms"):
                connection.execute(drop.format(sql.SQL(name)))
                connection.execute(_FORGET_TABLE, {"id": number})
        except psycopg.errors.LockNotAvailable:
            continue
