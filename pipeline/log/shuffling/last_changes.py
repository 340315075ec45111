"""Up to where the log has changes: behind them come only rows that were read from tables, which touch no others."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.log import table as log
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection


class LastChanges:
    """For the one writer of the events tables: whatever it has not called a range counts as changes."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._changes: dict[str, int] = {}

    def look(self, connection: Connection, tables: Iterable[EventsTable]) -> dict[str, int]:
        """By events table the last seq that a change may have."""
        for table in tables:
            name, seq = str(table), log.last_seq(connection, table)
            if self._known.get(name) != seq:
                self._known[name] = self._changes[name] = seq
        return self._changes

    def range_moved(self, table: str, seq: int) -> None:
        """Since the last look only rows of ranges were added to this table, the last of them with this seq."""
        if table in self._known:
            self._known[table] = seq
