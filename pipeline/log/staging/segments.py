"""Segments: the children of `wal_events`. A worker fills one at a time; the shuffler drains them in order of LSN.

A segment goes free → filling → full → drained → free. It is emptied by TRUNCATE in a separate transaction, never by
DELETE while it is in use, so that a snapshot held elsewhere in the database cannot make staging bloat.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

FULL_AT = 2_000
"""Rows at which a segment takes no further batch: the shuffler may have to read it again to find new rows."""

STAGED_CHANNEL = "pipeline_staged"
"""NOTIFY channel of each staging commit."""
_DRAINED_SEGMENTS = "select id from pipeline.segments where state = 'drained' order by id"
"""List the segments to empty."""
_MARK_DRAINED = "update pipeline.segments set state = 'drained' where id = any(%(ids)s) and state = 'full'"
"""Mark segments whose rows are all in the events tables; they may be emptied."""


@dataclass(frozen=True)
class Segment:
    """A child of wal_events that holds rows; LSNs are the commit LSNs of its first and last row.

    Ordinals count up from `first_ordinal` without gaps, in order of (commit_lsn, commit_idx).
    """

    id: int
    full: bool
    first_lsn: int
    last_lsn: int
    first_ordinal: int
    row_count: int

    @property
    def rows(self) -> sql.Composable:
        """The relation, or a query, from which SQL selects the segment's rows."""
        return sql.SQL("only {}").format(table(self.id))


@dataclass(frozen=True)
class StagingState:
    """How far a source is staged and moved: everything up to `watermark` is moved, and up to `complete` staged.

    `generation` changes with each worker. `next_range`: the next place of rows that were read from a table.
    `next_adopted`: the next transaction of a table that waits to become a partition.
    """

    epoch: int
    watermark: int
    complete: int
    generation: str
    next_range: int | None = None
    next_adopted: int | None = None

    @property
    def whole(self) -> int:
        """The last transaction that can be moved before the next range, and before the next table to be adopted."""
        places = [place - 1 for place in (self.next_range, self.next_adopted) if place is not None]
        return min([self.complete, *places])


def table(segment_id: int) -> sql.Identifier:
    """Return the name of a segment's child table."""
    return sql.Identifier("pipeline", f"wal_events_{segment_id:05d}")


def create(segment_id: int) -> sql.Composed:
    """Return the statement that creates the child table of a new segment.

    It is one command and no ALTER, after which psycopg would deallocate the session's prepared statements. A segment
    has no key: if a publication for all tables contains it, no row could be deleted without a full identity.
    """
    return sql.SQL(
        "do $$ begin create table {table} () inherits (public.wal_events)"
        " with (autovacuum_enabled = off, toast.autovacuum_enabled = off);"
        " alter table {table} replica identity full; end $$"
    ).format(table=table(segment_id))


def read_state(connection: Connection, source: uuid.UUID) -> tuple[StagingState | None, list[Segment]]:
    """Return the state (None before the first staged row) and the segments with rows to move, read at one moment."""
    found = connection.execute(statement("log.staging.frontier", "staging_state"), {"source": source}).fetchall()
    segments = [Segment(*row[6:]) for row in found if row[6] is not None]
    return (StagingState(*found[0][:6]) if found else None), segments


def read_pending(connection: Connection, source: uuid.UUID) -> list[Segment]:
    """Return the segments with rows that may have to be moved, in order of LSN."""
    return queries.rows(connection, Segment, statement("log.staging", "pending_segments"), {"source": source})


def first_ordinal_after(connection: Connection, segment: Segment, commit_lsn: int) -> int:
    """Return the ordinal of the segment's first row beyond `commit_lsn`; this reads the whole segment."""
    row = connection.execute(
        sql.SQL("select min(ordinal) from {} w where commit_lsn > %s").format(segment.rows), (commit_lsn,)
    ).fetchone()
    return row[0] if row and row[0] is not None else segment.first_ordinal + segment.row_count


def mark_drained(connection: Connection, ids: Sequence[int]) -> int:
    """Mark these segments in the transaction that moved their rows; returns how many of them were full."""
    return connection.execute(_MARK_DRAINED, {"ids": list(ids)}).rowcount if ids else 0


def empty_drained(connection: Connection) -> int:
    """Truncate drained segments for reuse, each in its own transaction; a segment that another session locks is left.

    The connection must be in autocommit mode and outside of a transaction. Returns how many were emptied.
    """
    emptied = 0
    for (segment_id,) in connection.execute(_DRAINED_SEGMENTS).fetchall():
        name = table(segment_id)
        try:
            with connection.transaction():
                connection.execute(sql.SQL("lock table only {} in access exclusive mode nowait").format(name))
                # It may have been emptied and filled again since the query.
                if connection.execute(statement("log.staging", "free_segment"), {"id": segment_id}).rowcount == 1:
                    connection.execute(sql.SQL("truncate only {}").format(name))
                    emptied += 1
        except psycopg.errors.LockNotAvailable:
            continue
    return emptied
