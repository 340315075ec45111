"""Counts rows of one database again and again, in a thread: one that does not answer keeps nobody waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import psycopg

from pipeline.errors import PipelineError
from pipeline.followers import row_counts
from pipeline.followers.registry import TableName
from pipeline.followers.row_counts import Rows
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.process import supervised

EVERY = 1.0
"""Seconds between two counts of a database."""
SILENT_SECONDS = 10.0
"""After so long a database counts as silent, and its connection is given up."""


class Counting:
    """Counts rows of one database. `connect` makes a connection with `row_counts.SETTINGS`.

    It raises PipelineError or psycopg.Error. `most`: a table with more rows is estimated; None: all are counted.
    """

    def __init__(
        self, name: str, connect: Callable[[], Connection], *, by_oid: bool, most: int | None = row_counts.EXACTLY
    ) -> None:
        self._connect, self._by_oid, self._most = connect, by_oid, most
        self._tables: Sequence[TableName] = ()
        self._found = dict[int, Rows | None]()
        self._reason: str | None = None
        self._ended = threading.Event()
        self._began: float | None = None
        self._connection: Connection | None = None
        supervised.start_thread(f"counting {name}", self._run)

    def look(self, tables: Sequence[TableName]) -> tuple[dict[int, Rows | None], str | None]:
        """What was found last, by the oid at the source, and why nothing is known; these tables are counted next."""
        self._tables = tables
        began, connection = self._began, self._connection
        if began is not None and time.monotonic() > began + SILENT_SECONDS:
            if connection is not None:
                connections.hang_up(connection)
            return {}, f"it does not answer within {SILENT_SECONDS:g} s"
        return self._found, self._reason

    def end(self) -> None:
        """Count no more; what is being counted is not waited for."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._began = time.monotonic()
            try:
                with self._connect() as self._connection:
                    self._repeat(self._connection)
            except (PipelineError, psycopg.Error) as error:
                self._found, self._reason = {}, connections.one_line(error)
            self._connection = self._began = None
            self._ended.wait(EVERY)

    def _repeat(self, connection: Connection) -> None:
        while not self._ended.is_set():
            self._began, tables = time.monotonic(), self._tables
            counted = row_counts.count(connection, tables, by_oid=self._by_oid, most=self._most)
            self._found = {table.table_oid: rows for table, rows in zip(tables, counted, strict=True)}
            self._reason, self._began = None, None
            self._ended.wait(EVERY)
