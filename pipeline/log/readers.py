"""The registry of readers, `pipeline.readers`: how far each reader is, what it still needs, and whether it is active.

A new kind of reader is one more branch of that view, in `functions/readers.sql` here. No other code
asks where a reader is in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg import sql

from pipeline.log.page import DEFAULT_LOG
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

LAKE = "lake"
"""The kind of a folder to which the log is exported on a schedule; all other kinds take events as they arrive."""
FOLLOWER = "follower"
"""The kind of a database to which the log is applied."""


@dataclass(frozen=True)
class NeedingReader:
    """A reader that needs every event after a seq. `remedy`: what to do when that prevents retention from dropping."""

    kind: str
    name: str
    needs_after: int
    remedy: str


@dataclass(frozen=True)
class LaggingReader:
    """A reader that has events to take: where the first of them is, and how many seqs there are from there to the head.

    `active`: whether a client reads for it now; None when that cannot be known.
    """

    kind: str
    name: str
    active: bool | None
    paused: bool
    remedy: str
    seqs: int
    commit_lsn: int | None
    committed_at: datetime
    epoch: int


class ReaderRegistry:
    """The readers of one events table; `known` returns those of all tables."""

    def __init__(self, connection: Connection, table: EventsTable) -> None:
        self._connection = connection
        self._table = table
        self._values = {"table": str(table)}

    def known(self) -> set[tuple[str, str]]:
        """Return kind and name of every reader, of any table, whether or not it needs events."""
        return set(self._connection.execute(statement("log", "known_readers")).fetchall())

    def needing(self) -> list[NeedingReader]:
        """Return the readers for which events must be kept, the one that needs most first."""
        return queries.rows(self._connection, NeedingReader, statement("log", "needing_readers"), self._values)

    def lagging(self, *, of_default: bool = True) -> list[LaggingReader]:
        """Return the readers that have not taken all events yet.

        `of_default`: the table is the default one, which may not exist yet.
        """
        events = DEFAULT_LOG if of_default else self._table.identifier
        query = sql.SQL(statement("log", "lagging_readers")).format(events=events)
        return queries.rows(self._connection, LaggingReader, query, self._values)
