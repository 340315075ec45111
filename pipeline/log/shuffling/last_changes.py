"""Remember the last changes in the log. After them come only rows of ranges, which touch no other rows."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.log import table as log
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection


class LastChanges:
    """The last changes, as the one writer of the events tables knows them: all events but reported ranges."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._changes: dict[str, int] = {}

    def read_last_seqs(self, connection: Connection, tables: Iterable[EventsTable]) -> dict[str, int]:
        """Return the last seq that a change may have, by events table."""
        for table in tables:
            name, seq = str(table), log.last_seq(connection, table)
            if self._known.get(name) != seq:
                self._known[name] = self._changes[name] = seq
        return self._changes

    def range_moved(self, table: str, seq: int) -> None:
        """Note that since the last read only rows of ranges were added to this table, up to this seq."""
        if table in self._known:
            self._known[table] = seq
