"""`EventLog`, a client for the log: `for event in EventLog(dsn).follow(after=seq)`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from pipeline.client import exact_json
from pipeline.config import patterns
from pipeline.config.settings import describe
from pipeline.errors import ConsumerError, CursorExpiredError, DatabaseUnavailableError, StatementRefusedError
from pipeline.log.page import (
    EventFilter,
    EventPage,
    EventPageReader,
    EventPageRequest,
    EventShape,
    LostSeqCheck,
    NewestSeq,
    OldestKeptSeq,
    beyond,
    is_expired,
)
from pipeline.log.table import CHANNEL, EventsTable
from pipeline.postgres import connections, queries, session_settings
from pipeline.postgres.connections import Connection

__all__ = ["Event", "EventLog"]

logger = logging.getLogger(__name__)

POLL_SECONDS = 5.0
"""Seconds between reads of the log without a notification; 1 second if LISTEN is not possible."""
_POLL_ALONE_SECONDS = 1.0
_FIRST_DELAY, _LONGEST_DELAY = 0.25, 5.0
_FIRST_ROWS, _MOST_ROWS, _PAGE_BYTES = 100, 2_000, 8_000_000


@dataclass(frozen=True, slots=True)
class Event:
    """One change, with the columns of `sequin_events`. Numbers in `record` are exact: int, or Decimal.

    An integer with more digits than Python's `int` parses (4,300; see sys.set_int_max_str_digits) becomes a Decimal. A
    document that is nested too deeply for Python's parser becomes None; `unparsed` has its text by the column's name.
    """

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
    unparsed: dict[str, str] = field(default_factory=dict)


class EventLog:
    """A reader of the events table `events_table` in the database at `dsn`.

    The log stores no position for this reader, so store the position (`seq`) yourself. If you store it in the
    transaction that applies the event, each event is applied exactly once, whatever crashes. Retention waits for
    consumers, but not for this reader.
    """

    def __init__(self, dsn: str, events_table: str = "public.sequin_events") -> None:
        """Prepare a reader, which connects at the first read. `dsn`: libpq URI or key=value."""
        self._dsn = dsn
        self._table = EventsTable.parse(events_table)

    def read(self, after: int, limit: int = 1000, tables: Sequence[str] = ()) -> list[Event]:
        """Return the next events after a seq, at most `limit`; empty if none has arrived yet.

        A legacy table may have several events with the same seq: all of these are returned, even if there are more than
        `limit`. Raises CursorExpiredError if retention has dropped the next event, DatabaseUnavailableError, and
        ConsumerError as `follow` does.
        """
        events: list[Event] = []
        with self._reader(_filter(tables)) as reader:
            at_head = False
            while len(events) < limit and not at_head:
                page = reader.page(after, limit - len(events))
                events += page.entries
                after, at_head = page.upto, page.at_head
        return events

    def follow(
        self, after: int | None = None, tables: Sequence[str] = (), wait: float | None = None
    ) -> Iterator[Event]:
        """Yield every event after a seq in order of seq, then new events as they arrive.

        `after`: None begins with the oldest kept event. `tables`: patterns `schema.table`, in which `*` matches
        anything; empty means all. Ends after `wait` seconds without an event; None: never. No transaction is open in
        the database while the caller handles an event. If the connection is lost, the reader reconnects without end,
        and continues after the last event.

        Raises CursorExpiredError if retention has dropped the next event, DatabaseUnavailableError if the first
        connection fails. Raises ConsumerError if the table does not exist or may not be read, if `tables` has another
        pattern, or if the log has not assigned the seq `after` yet.
        """
        return self._following(_ReadingState(after, wait), _filter(tables))

    def _following(self, place: _ReadingState, wanted: EventFilter) -> Iterator[Event]:
        delay = _FIRST_DELAY
        while True:
            try:
                with self._reader(wanted) as reader:
                    place.last_event_at = time.monotonic() if place.last_event_at is None else place.last_event_at
                    delay = _FIRST_DELAY
                    yield from _follow(reader, place)
                    return
            except DatabaseUnavailableError as error:
                if place.last_event_at is None:
                    raise
                logger.warning("%s; trying again", error, extra={"action": "client.lost"})
            time.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)

    @contextmanager
    def _reader(self, wanted: EventFilter) -> Iterator[_LogReader]:
        where = f"the log {self._table} ({describe(self._dsn)})"
        try:
            connection = connections.connect_plainly(
                self._dsn, name="pipeline client", settings=session_settings.READER, prepare_threshold=1
            )
            with connection:
                yield _LogReader(connection, self._table, wanted)
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if not connections.is_gone(error):
                raise StatementRefusedError(
                    f"{where} cannot be read: {connections.one_line(error)} (SQLSTATE {error.sqlstate})"
                ) from error
            raise DatabaseUnavailableError(f"{where} is not available: {connections.one_line(error)}") from error
        except psycopg.errors.UndefinedTable as error:
            raise ConsumerError(f"{where} does not exist; run `pipeline migrate`, or name another table") from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise ConsumerError(f"this user may not read {where}: {connections.one_line(error)}") from error


@dataclass
class _ReadingState:
    """The position and the waiting time of one call of `follow`.

    `last_event_at`: the time, by time.monotonic, of the last event, or of the first connection before that.
    """

    position: int | None
    wait: float | None
    last_event_at: float | None = None

    @property
    def remaining(self) -> float | None:
        """The seconds that remain to wait for an event; None: no limit."""
        if self.wait is None or self.last_event_at is None:
            return None
        return max(0.0, self.last_event_at + self.wait - time.monotonic())


def _follow(reader: _LogReader, place: _ReadingState) -> Iterator[Event]:
    """Yield events over one connection, until no event has arrived for the seconds that the caller wants to wait."""
    reader.listen()
    if place.position is None:
        place.position = reader.kept_from() - 1
    while True:
        page = reader.page(place.position, _MOST_ROWS)
        for event in page.entries:
            place.position = event.seq
            yield event
            place.last_event_at = time.monotonic()
        place.position = page.upto
        if page.at_head and place.remaining == 0:
            return
        if page.at_head:
            reader.wait(place.remaining)


class _LogReader:
    """A connection that reads pages of events. `rows`: the most events of the next page, which limit its memory."""

    def __init__(self, connection: Connection, table: EventsTable, wanted: EventFilter) -> None:
        self.rows = _FIRST_ROWS
        self._connection = connection
        self._table = table
        self._wanted = wanted
        self._newest = NewestSeq(table)
        self._poll = POLL_SECONDS
        self._pages = EventPageReader(table.identifier, _COLUMNS)
        sees_jumps = bool(queries.value(connection, queries.statement("client", "sees_jumps")))
        sees_retention = queries.value(connection, queries.statement("client", "sees_retention"))
        self._kept = OldestKeptSeq(table, sees_retention=sees_retention, sees_jumps=sees_jumps)
        self._lost = LostSeqCheck(table, sees_jumps=sees_jumps)
        self._reached: int | None = None

    def listen(self) -> None:
        """Let the database notify this connection of new events. A standby and some poolers do not support that."""
        try:
            self._connection.execute(f"listen {CHANNEL}")
        except (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.FeatureNotSupported):
            self._poll = _POLL_ALONE_SECONDS

    def page(self, after: int, limit: int) -> EventPage[Event]:
        """Return the next events, at most `limit`.

        Raises CursorExpiredError, and ConsumerError for a seq that the log has not assigned yet.
        """
        request = EventPageRequest(after, min(limit, self.rows), _PAGE_BYTES, self._wanted)
        page = self._pages.read(self._connection, request)
        if after != self._reached and (lost := self._lost.read(self._connection, after)):
            raise CursorExpiredError(f"{lost}; some changes will be read a second time", lost.before)
        kept_from = self.kept_from()
        if is_expired(after, kept_from):
            raise CursorExpiredError(
                f"events up to seq {kept_from - 1} of {self._table} are no longer kept, so reading cannot continue "
                f"after {after}; continue after {kept_from - 1}, and replace the missing events by other means",
                kept_from - 1,
            )
        if page.beyond_head and (wrong := beyond(after, self._newest.read(self._connection), kept_from)):
            raise ConsumerError(f"{wrong}; give a seq of an event that was read from {self._table}")
        self.rows, self._reached = min(page.next_rows, _MOST_ROWS), page.upto
        return page

    def wait(self, seconds: float | None) -> None:
        """Wait for a notification, at most `seconds` and until the next poll."""
        timeout = self._poll if seconds is None else min(seconds, self._poll)
        for _ in self._connection.notifies(timeout=timeout, stop_after=1):
            continue

    def kept_from(self) -> int:
        """Return the oldest seq from which on all events are kept."""
        return self._kept.read(self._connection)


def _filter(tables: Sequence[str]) -> EventFilter:
    try:
        patterns.require_qualified(tables)
    except ValueError as error:
        raise ConsumerError(str(error)) from None
    return EventFilter(tuple(tables))


def _event(*values: Any) -> Event:
    columns = list(values)
    unparsed = exact_json.parse_all(columns, _JSON)
    columns.append(unparsed)
    return Event(*columns)


_NAMES = [each.name for each in fields(Event)]
_JSON = {_NAMES.index(name): name for name in exact_json.COLUMNS}
_COLUMNS = EventShape(
    columns="""e.seq, e.source_database_id, e.source_epoch, e.commit_lsn, e.commit_idx, e.xid, e.source_table_oid,
        e.source_table_schema, e.source_table_name, e.record_pk, e.record::text as record, e.changes::text as changes,
        e.exact::text as exact, e.action, e.unchanged_columns,
        e.transaction_annotations::text as transaction_annotations, e.metadata::text as metadata, e.committed_at,
        e.inserted_at""",
    size="octet_length(concat(record, changes, exact, transaction_annotations, metadata))",
    make=_event,
)
