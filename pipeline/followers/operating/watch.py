"""Watches source and followers: the rows of each table, how far each is behind, and how fast it applies."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from types import TracebackType

import psycopg

from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.followers import connecting, registry, row_counts
from pipeline.followers.operating import follower_tables, status
from pipeline.followers.registry import NamedTable, RegisteredFollower
from pipeline.followers.row_counts import EXACTLY, SETTINGS, RowCount
from pipeline.postgres import connections, reading_session
from pipeline.postgres.connections import Connection
from pipeline.process import supervised

PATIENCE = 10.0
"""Seconds that the pipeline database may take to answer."""
PROGRAM = "pipeline followers watch"
SOURCE = "source"
CONNECT_SECONDS = 5
RATE_LOOKS = 4
"""The number of observations over which a rate is measured, because appliers report only twice a second."""

EVERY = 1.0
"""Seconds between two counts of a database."""
SILENT_SECONDS = 10.0
"""Seconds without an answer after which a database counts as silent and its connection is closed."""


@dataclass(frozen=True)
class WatchedTable:
    """A table of a database. `rows`: None if it does not exist, is locked or not counted yet.

    `estimated`: the table has too many rows to count.
    """

    table: str
    rows: int | None
    estimated: bool = False


@dataclass(frozen=True)
class WatchedDatabase:
    """The source or a follower. `seq`: for the source the head of the log; a follower has everything up to its `seq`.

    `rate`: changes a second in the last observations, None at the first. `rows_reason`: why no rows are known.
    """

    name: str
    state: str | None
    reason: str | None
    remedy: str | None
    seq: int
    lag_seqs: int
    lag_seconds: float
    rate: float | None
    rows_reason: str | None
    tables: list[WatchedTable] = field(default_factory=list)


@dataclass(frozen=True)
class WatchState:
    """The source, then all followers, at one moment. `reason`: why the pipeline database did not answer."""

    at: datetime
    reason: str | None = None
    databases: list[WatchedDatabase] = field(default_factory=list)


class FollowersWatch:
    """Observes the source and all registered followers. A context manager for one thread.

    `most`: the most rows of a table that are counted; more are estimated. None: all rows are counted.
    """

    def __init__(self, config: Config, most: int | None = EXACTLY) -> None:
        self._config, self._most = config, most
        self._countings = dict[str, RowCounter]()
        self._seqs = dict[str, deque[tuple[float, int]]]()

    def __enter__(self) -> FollowersWatch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for each in self._countings.values():
            each.end()

    def read_state(self) -> WatchState:
        """Return the current state. If a database does not answer, its state says so, and this call does not wait."""
        now = datetime.now(UTC)
        try:
            dsn = self._config.database
            with connections.answering(dsn, "pipeline database", PATIENCE, name=PROGRAM, for_command=True) as pipeline:
                found, head = registry.find(pipeline), follower_tables.newest_seq(pipeline)
                passed = follower_tables.count_seqs(pipeline, head)
                served = status.is_served(pipeline)
        except (PipelineError, psycopg.Error) as error:
            return WatchState(now, connections.one_line(error))
        return WatchState(
            now, databases=[self._source(found, head, passed), *(self._follower(each, served) for each in found)]
        )

    def _source(self, found: Sequence[RegisteredFollower], head: int, passed: int) -> WatchedDatabase:
        tables = {table.table_oid: table for each in found for table in each.table_states}
        listed = sorted(tables.values(), key=lambda each: (each.table_schema, each.table_name))
        counting = self._counting(SOURCE, connect=partial(_connect_source, self._config), by_oid=True)
        rows, reason = counting.last_counts(listed)
        return WatchedDatabase(
            SOURCE, None, None, None, head, 0, 0.0, self._rate("", passed), reason, _watched_tables(listed, rows)
        )

    def _follower(self, each: RegisteredFollower, served: bool) -> WatchedDatabase:
        shown = status.follower_status(each, served=served)
        counting = self._counting(f"{each.id} {each.name}", partial(_connect_follower, each.name, each.dsn))
        rows, reason = counting.last_counts(each.table_states)
        return WatchedDatabase(
            each.name,
            shown.state,
            shown.reason,
            shown.remedy,
            shown.seq,
            shown.lag_seqs,
            shown.lag_seconds,
            self._rate(str(each.id), each.passed_seqs),
            reason,
            _watched_tables(each.table_states, rows),
        )

    def _counting(self, name: str, connect: partial[Connection], *, by_oid: bool = False) -> RowCounter:
        if name not in self._countings:
            self._countings[name] = RowCounter(name, connect, by_oid=by_oid, most=self._most)
        return self._countings[name]

    def _rate(self, of: str, seq: int) -> float | None:
        looks = self._seqs.setdefault(of, deque(maxlen=RATE_LOOKS))
        looks.append((time.monotonic(), seq))
        (began, first), (ended, last) = looks[0], looks[-1]
        return None if len(looks) == 1 else round(max(last - first, 0) / max(ended - began, 0.001), 1)


def _watched_tables(tables: Sequence[NamedTable], found: dict[int, RowCount | None]) -> list[WatchedTable]:
    """Return the row counts of these tables with their names in the registry."""

    def one(table: NamedTable) -> WatchedTable:
        rows = found.get(table.table_oid)
        name = f"{table.table_schema}.{table.table_name}"
        return WatchedTable(name, rows.rows if rows else None, rows is not None and rows.estimated)

    return [one(each) for each in tables]


def _connect_source(config: Config) -> Connection:
    return reading_session.connect(config, name=PROGRAM, settings=SETTINGS, connect_timeout=CONNECT_SECONDS)


def _connect_follower(name: str, dsn: str) -> Connection:
    options = {"settings": SETTINGS, "connect_timeout": CONNECT_SECONDS, "prepare_threshold": None}
    return connecting.connect(name, dsn, program=PROGRAM, **options)


class RowCounter:
    """Counts rows of one database. `connect` makes a connection with `row_counts.SETTINGS`.

    `connect` raises PipelineError or psycopg.Error. `most`: as in `FollowersWatch`.
    """

    def __init__(
        self, name: str, connect: Callable[[], Connection], *, by_oid: bool, most: int | None = row_counts.EXACTLY
    ) -> None:
        self._connect, self._by_oid, self._most = connect, by_oid, most
        self._tables: Sequence[NamedTable] = ()
        self._found = dict[int, RowCount | None]()
        self._reason: str | None = None
        self._ended = threading.Event()
        self._began: float | None = None
        self._connection: Connection | None = None
        supervised.start_thread(f"counting {name}", self._run)

    def last_counts(self, tables: Sequence[NamedTable]) -> tuple[dict[int, RowCount | None], str | None]:
        """Return the latest counts, by oid at the source, or why there are none; and begin to count these tables."""
        self._tables = tables
        began, connection = self._began, self._connection
        if began is not None and time.monotonic() > began + SILENT_SECONDS:
            if connection is not None:
                connections.hang_up(connection)
            return {}, f"it does not answer within {SILENT_SECONDS:g} s"
        return self._found, self._reason

    def end(self) -> None:
        """Stop counting, without waiting for a count that runs."""
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
