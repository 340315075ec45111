"""The registry of readers, `pipeline.readers`: who has read how far, what each still needs, and who reads now.

A new kind of reader is one more branch of that view. Nothing else asks where a reader stands in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

LAKE = "lake"
"""The kind of a folder that the log is exported to; what else there is takes events as they come."""


@dataclass(frozen=True)
class Needing:
    """A reader that needs every event after a seq. `remedy`: what to do when that keeps retention from its work."""

    kind: str
    name: str
    needs_after: int
    remedy: str


@dataclass(frozen=True)
class Behind:
    """A reader that has something to take: its first event, and how many seqs there are from there.

    `active`: whether somebody reads for it now; None: nobody can tell.
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


class Readers:
    """Those of one events table; `known` tells of all."""

    def __init__(self, connection: Connection, table: EventsTable) -> None:
        self._connection = connection
        self._values = {"table": str(table)}

    def known(self) -> set[tuple[str, str]]:
        """Kind and name of each, of whatever table, whether or not it needs anything."""
        return set(self._connection.execute(statement("log", "known_readers")).fetchall())

    def needing(self) -> list[Needing]:
        """Those for whom events have to be kept, the one that needs most first."""
        return queries.rows(self._connection, Needing, statement("log", "readers_needing"), self._values)

    def behind(self) -> list[Behind]:
        """Those that lack events which are there already. Of the default table only."""
        return queries.rows(self._connection, Behind, statement("log", "readers_behind"), self._values)
