"""The log for programs: `for event in EventLog(dsn).follow(after=seq)`. No server is needed, only the database."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.types.json import set_json_loads

from pipeline.config import patterns
from pipeline.config.settings import describe
from pipeline.errors import ConsumerError, CursorExpired, Unavailable
from pipeline.log.table import CHANNEL, EventsTable
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection

__all__ = ["Event", "EventLog"]

logger = logging.getLogger(__name__)

POLL_SECONDS = 5.0
"""How often the log is looked at although nothing was heard; every second where LISTEN is not possible."""
_POLL_ALONE_SECONDS = 1.0
_FIRST_DELAY, _LONGEST_DELAY = 0.25, 5.0
_SPAN = 50_000
_FIRST_ROWS, _MOST_ROWS, _PAGE_BYTES = 100, 2_000, 8_000_000


@dataclass(frozen=True, slots=True)
class Event:
    """One change, with the columns of `sequin_events`. Numbers in `record` are exact: int, or Decimal."""

    seq: int
    source_database_id: UUID
    source_epoch: int
    commit_lsn: int | None
    commit_idx: int | None
    xid: int | None
    source_table_oid: int
    source_table_schema: str
    source_table_name: str
    record_pk: str
    record: dict[str, Any]
    changes: dict[str, Any] | None
    exact: dict[str, str] | None
    action: str
    unchanged_columns: list[str] | None
    transaction_annotations: Any
    metadata: dict[str, Any] | None
    committed_at: datetime
    inserted_at: datetime


class EventLog:
    """The events table `events_table` of the database at `dsn`, as one reader sees it.

    The log keeps no position for who reads this way. Keep it yourself, in the transaction that applies the event: then
    every event is applied exactly once, whatever dies. Retention does not wait for you; a named consumer it waits for.
    """

    def __init__(self, dsn: str, events_table: str = "public.sequin_events") -> None:
        """Connects later. `dsn`: libpq URI or key=value."""
        self._dsn = dsn
        self._table = EventsTable.parse(events_table)

    def read(self, after: int, limit: int = 1000, tables: Sequence[str] = ()) -> list[Event]:
        """The next events after a seq, `limit` at most; empty when there are none yet.

        A table from before may have one seq several times: then all of them come, and may be more than `limit`.
        Raises CursorExpired when retention has dropped the next one, Unavailable, ConsumerError.
        """
        events: list[Event] = []
        with self._reader(tables) as reader:
            at_head = False
            while len(events) < limit and not at_head:
                page, after, at_head = reader.page(after, limit - len(events))
                events += page
        return events

    def follow(
        self, after: int | None = None, tables: Sequence[str] = (), wait: float | None = None
    ) -> Iterator[Event]:
        """Every event after a seq (None: from the oldest that is kept), in order of seq, then new ones as they come.

        `tables`: `schema.table`, where `*` matches anything; none means all. Ends after `wait` seconds without an
        event; None: never. Nothing is held open in the database while an event is with the caller. A connection that is
        lost is made again and again, and the log read on from where it was.
        Raises CursorExpired when retention has dropped the next event, Unavailable when the first connection fails,
        ConsumerError when there is no such table or it may not be read.
        """
        place = _Place(after, wait)
        delay = _FIRST_DELAY
        while True:
            try:
                with self._reader(tables) as reader:
                    place.seen = time.monotonic() if place.seen is None else place.seen
                    delay = _FIRST_DELAY
                    yield from _follow(reader, place)
                    return
            except Unavailable as error:
                if place.seen is None:
                    raise
                logger.warning("%s; trying again", error, extra={"action": "client.lost"})
            time.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)

    @contextmanager
    def _reader(self, tables: Sequence[str]) -> Iterator[_Reader]:
        where = f"the log {self._table} ({describe(self._dsn)})"
        try:
            connection = psycopg.connect(
                connections.conninfo(self._dsn, application_name="pipeline client"),
                autocommit=True,
                prepare_threshold=1,
            )
            with connection:
                yield _Reader(connection, self._table, tables)
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise Unavailable(f"{where} is not available: {connections.one_line(error)}") from error
        except psycopg.errors.UndefinedTable as error:
            raise ConsumerError(f"{where} does not exist; run `pipeline migrate`, or name another table") from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise ConsumerError(f"{where} may not be read by this user: {connections.one_line(error)}") from error


@dataclass
class _Place:
    """How far a follower is; `seen`: when it last had an event, or began."""

    position: int | None
    wait: float | None
    seen: float | None = None

    @property
    def left(self) -> float | None:
        """Seconds that it still waits; None: for ever."""
        return None if self.wait is None or self.seen is None else max(0.0, self.seen + self.wait - time.monotonic())


def _follow(reader: _Reader, place: _Place) -> Iterator[Event]:
    """Over one connection, until nothing came for too long."""
    reader.listen()
    if place.position is None:
        place.position = reader.dropped_below() - 1
    while True:
        page, upto, at_head = reader.page(place.position, reader.rows)
        for event in page:
            place.position = event.seq
            yield event
            place.seen = time.monotonic()
        place.position = upto
        if at_head and place.left == 0:
            return
        if at_head:
            reader.wait(place.left)


class _Reader:
    """One connection of a reader. `rows`: how many events to ask for, so that a page stays small in memory."""

    def __init__(self, connection: Connection, table: EventsTable, tables: Sequence[str]) -> None:
        self.rows = _FIRST_ROWS
        self._connection = connection
        self._table = table
        self._likes = patterns.likes(tables)
        self._poll = POLL_SECONDS
        self._bytes = 0
        set_json_loads(self._parse, connection)
        self._query = sql.SQL(connections.sql("log", "read_after")).format(events=table.identifier)
        self._sees_retention = bool(connections.value(connection, connections.sql("log", "sees_retention")))

    def listen(self) -> None:
        """Hear of new events from now on, where that is possible: a standby and some poolers have no LISTEN."""
        try:
            self._connection.execute(f"listen {CHANNEL}")
        except (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.FeatureNotSupported):
            self._poll = _POLL_ALONE_SECONDS

    def page(self, after: int, limit: int) -> tuple[list[Event], int, bool]:
        """Events, up to where that is all there is, and whether that is the head. Raises CursorExpired."""
        self._bytes = 0
        values = {"after": after, "tables": self._likes, "span": _SPAN, "limit": limit}
        rows = self._connection.execute(self._query, values).fetchall()
        self._require_kept(after)
        head, bound = rows[0][:2]
        if bound is None:
            return [], after, True
        events = [Event(*row[2:]) for row in rows if row[2] is not None]
        upto = events[-1].seq if len(events) >= limit else min(head, bound - 1)
        if events:
            self.rows = max(1, min(_MOST_ROWS, 2 * limit, _PAGE_BYTES * len(events) // max(1, self._bytes)))
        return events, upto, upto >= head

    def wait(self, seconds: float | None) -> None:
        """Until something is heard, or it is time to look."""
        timeout = self._poll if seconds is None else min(seconds, self._poll)
        for _ in self._connection.notifies(timeout=timeout, stop_after=1):
            continue

    def dropped_below(self) -> int:
        """Every event from this seq on is kept."""
        name = self._table.identifier.as_string(self._connection)
        lowest = int(
            connections.value(self._connection, connections.sql("log", "lowest_bound"), {"table": name}, default=1)
        )
        if self._sees_retention:
            values = {"table": str(self._table)}
            lowest = max(
                lowest,
                int(
                    connections.value(
                        self._connection, connections.sql("log.retention", "find_dropped"), values, default=1
                    )
                ),
            )
        return lowest

    def _require_kept(self, after: int) -> None:
        """After every read: who drops events says so before."""
        below = self.dropped_below()
        if after + 1 < below:
            raise CursorExpired(
                f"events up to seq {below - 1} of {self._table} are no longer kept, so nobody can go on after {after}; "
                f"go on after {below - 1}, and make up for what is missing",
                below - 1,
            )

    def _parse(self, text: str | bytes) -> Any:
        self._bytes += len(text)
        return json.loads(text, parse_float=Decimal)
