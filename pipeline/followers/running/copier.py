"""Copies tables of a follower again in a thread, while its applier applies the log to the other tables."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial

import psycopg

from pipeline.config.settings import Config
from pipeline.errors import (
    ApplierOvertakenError,
    FollowedTablesChangedError,
    FollowerError,
    PipelineError,
    StatementRefusedError,
)
from pipeline.followers import registry
from pipeline.followers.copying import missing_tables, pending_statements, refusals
from pipeline.followers.copying.copies import RequestedCopy
from pipeline.followers.copying.replacements import TableReplacements
from pipeline.followers.copying.source_tables import CopyDelayedError
from pipeline.followers.copying.table_copies import REST_SECONDS, CopyInterruptedError
from pipeline.followers.registry import FollowerTable, NamedTable, RegisteredFollower, TableNote
from pipeline.followers.running import beginning
from pipeline.followers.schema_changes import partitions, table_adjustments, type_changes
from pipeline.followers.schema_changes.renames import TableRenames
from pipeline.followers.schema_changes.type_preparer import TypePreparer
from pipeline.log.table import EventsTable
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.process.signals import LEAVE_SECONDS

logger = logging.getLogger(__name__)

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
"""Seconds before a copy that failed is tried again; each failure in a row doubles them."""
_PROGRAM = "pipeline copier"


class TableCopier:
    """Copies tables of one follower. Its thread has its own connections and runs while tables must be copied."""

    def __init__(self, config: Config, follower: int, name: str) -> None:
        """`follower`: the id of its row."""
        self._config, self._id, self._name = config, follower, name
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._sessions: list[Connection] = []
        self._tables: Sequence[NamedTable] = ()
        self._delays = dict[int, float]()
        self._not_before = dict[int, float]()
        self._notes = dict[int, TableNote | None]()
        self._note_of: Callable[[PipelineError | psycopg.Error, NamedTable], TableNote]
        self.refused = dict[NamedTable, TableNote]()
        """Tables that cannot be copied until a user acts, and why."""
        self.replaced = 0
        """The number of copies that have replaced the rows of their tables."""

    def __enter__(self) -> TableCopier:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ensure(self, tables: Sequence[NamedTable]) -> None:
        """Start the thread, unless it runs or has failed just now. `tables`: the tables to copy."""
        self._tables = tables
        if (self._thread is None or not self._thread.is_alive()) and time.monotonic() >= self._not_before.get(0, 0):
            self._stopped.clear()
            self._thread = threading.Thread(target=self._run, name="copier", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for its end; the copy that it was making is dropped."""
        self._stopped.set()
        until = time.monotonic() + LEAVE_SECONDS
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < until:
            for session in list(self._sessions):
                with suppress(psycopg.Error):
                    session.cancel_safe(timeout=1)
            self._thread.join(0.1)
        self._not_before.clear()

    def _run(self) -> None:
        try:
            self._copy()
            self._reset_delay(0)
        except CopyInterruptedError:
            pass
        except (PipelineError, psycopg.Error) as error:
            if not self._stopped.is_set():
                logger.warning("%s: a copy: %s", self._name, connections.one_line(error), extra=_FAILED)
            self._delay(0)
        except Exception:
            logger.exception("%s: unexpected error in a copy", self._name, extra=_FAILED)
            self._delay(0)

    def _copy(self) -> None:
        """Copy until no table is left. Raises CopyInterruptedError, and any error that ends a connection."""
        dsn = self._config.database
        with self._session(connections.connect(dsn, "pipeline database", name=_PROGRAM)) as log:
            try:
                self._copy_all(log, self._read_registration(log))
            except (PipelineError, psycopg.Error) as error:
                if self._may_continue() and not log.broken:
                    for table in self._tables:
                        self._report(log, table, TableNote(f"cannot be copied: {connections.one_line(error)}"))
                raise

    def _copy_all(self, log: Connection, registration: RegisteredFollower) -> None:
        config = self._config
        there = beginning.applier_session(registration, _PROGRAM)
        with self._session(there) as follower, self._session(beginning.connect_source(config)) as source:
            renames = beginning.make_renames(config, lambda: self._read_registration(log))
            self._note_of = lambda error, table: refusals.note_of(error, follower, source, table.table_oid)
            types = TypePreparer(log, registration, renames, applies=True)

            def make_missing(table: NamedTable) -> None:
                if registration.schema_mode == "create":
                    with beginning.plain_session(registration) as session:
                        here = beginning.current_position(session, registration)
                        missing_tables.make_whole(source, config.source_reading, session, here, table)
                types.align(source, follower, table.table_oid)

            replacements = TableReplacements(
                log,
                follower,
                beginning.source_tables(config, log, registration)(source),
                registration,
                EventsTable.parse(config.events_table),
                go_on=self._may_continue,
                say=lambda table, reason: self._report(log, table, TableNote(reason) if reason else None),
                make_missing=make_missing,
                require_types=lambda table: types.require_same(source, follower, table.table_oid),
                fit=partial(table_adjustments.find, log, follower, source, registration),
                renaming=renames,
            )

            def make(table: NamedTable, request: RequestedCopy) -> None:
                _require_settled(log, follower, registration, renames, table)
                _finish(self._session, follower, registration, table)
                with type_changes.following_types(config, log, follower, registration):
                    replacements.make(table, request)

            while pending := self._pending(log, follower, replacements):
                if not any(self._is_made(log, make, table, request) for table, request in pending):
                    self._stopped.wait(REST_SECONDS)
                if not self._may_continue():
                    raise CopyInterruptedError

    def _pending(
        self, log: Connection, follower: Connection, replacements: TableReplacements
    ) -> list[tuple[NamedTable, RequestedCopy]]:
        tables = beginning.table_names(follower, self._read_registration(log))
        return [(tables[each.oid], each) for each in replacements.requested() if each.oid in tables]

    def _is_made(
        self,
        log: Connection,
        make: Callable[[NamedTable, RequestedCopy], None],
        table: NamedTable,
        request: RequestedCopy,
    ) -> bool:
        """Copy a table, if its delay is over; returns True if it was copied. Its errors do not stop other tables."""
        oid = table.table_oid
        if time.monotonic() < self._not_before.get(oid, 0):
            return False
        try:
            make(table, request)
        except CopyDelayedError as error:
            self._report(log, table, TableNote(str(error)))
            return False
        except ApplierOvertakenError:
            return False
        except (StatementRefusedError, FollowerError) as error:
            self._report_failure(log, table, error)
            return False
        except psycopg.Error as error:
            if not self._may_continue():
                raise CopyInterruptedError from error
            if connections.is_gone(error) or connections.is_ours(error):
                raise
            self._report_failure(log, table, error)
            return False
        self._reset_delay(oid)
        self.replaced += 1
        extra = {"action": "follower.copied"}
        logger.info("%s: table %s.%s was copied again", self._name, table.table_schema, table.table_name, extra=extra)
        return True

    def _report_failure(self, log: Connection, table: NamedTable, error: PipelineError | psycopg.Error) -> None:
        if not self._may_continue():
            raise CopyInterruptedError
        is_passing = isinstance(error, psycopg.Error) and refusals.is_passing(error)
        note = self._note_of(error, table)
        self._report(log, table, replace(note, state=None) if is_passing else note)
        self._delay(table.table_oid)

    def _read_registration(self, log: Connection) -> RegisteredFollower:
        found = next((each for each in registry.find(log, self._name) if each.id == self._id), None)
        if found is None:
            raise CopyInterruptedError
        return found

    def _report(self, log: Connection, table: NamedTable, note: TableNote | None) -> None:
        """Report once that a table is being copied, and why it waits or is stopped."""
        if table.table_oid in self._notes and self._notes[table.table_oid] == note:
            return
        row = FollowerTable.of(table, "copying", note)
        registry.store_table_states(log, self._id, [row])
        self._notes[table.table_oid] = note
        self.refused = {each: why for each, why in self.refused.items() if each.table_oid != table.table_oid}
        if note is not None:
            self.refused |= {table: note} if row.state == "stopped" else {}
            extra = {"action": "follower.copy_waits"}
            name, reason = f"{table.table_schema}.{table.table_name}", note.reason
            logger.info("%s: table %s %s", self._name, name, reason, extra=extra)

    @contextmanager
    def _session(self, connection: Connection) -> Iterator[Connection]:
        """Use a session whose statement `stop` cancels."""
        self._sessions.append(connection)
        try:
            with connection:
                yield connection
        finally:
            self._sessions.remove(connection)

    def _may_continue(self) -> bool:
        return not self._stopped.is_set()

    def _delay(self, of: int) -> None:
        """Delay the next attempt. `of`: a table's oid, or 0 for the whole thread."""
        delay = self._delays.get(of, FIRST_DELAY)
        self._not_before[of], self._delays[of] = time.monotonic() + delay, min(2 * delay, LONGEST_DELAY)

    def _reset_delay(self, of: int) -> None:
        self._delays.pop(of, None)
        self._not_before.pop(of, None)


def _require_settled(
    log: Connection, follower: Connection, registration: RegisteredFollower, renames: TableRenames, table: NamedTable
) -> None:
    """Raise FollowedTablesChangedError if tables were renamed or dropped, CopyDelayedError for a table that is still a
    partition at the follower.
    """
    if renames.follow_missing_tables(log, follower):
        raise FollowedTablesChangedError(f"tables of follower {registration.name} were renamed or dropped")
    if not partitions.detach_before_copy(log, follower, registration, table, renames.called(follower).values()):
        raise CopyDelayedError("is still a partition of another table where the follower is")


def _finish(
    entered: Callable[[Connection], AbstractContextManager[Connection]],
    follower: Connection,
    registration: RegisteredFollower,
    table: NamedTable,
) -> None:
    """Create the keys, indexes and checks of a table that failed after its first copy. Raises FollowerError."""
    here = beginning.current_position(follower, registration)
    if table.table_oid in pending_statements.unfinished_tables(follower, here):
        with entered(beginning.plain_session(registration)) as session:
            for error in pending_statements.finish(session, here, {table.table_oid: table}).values():
                raise error


_FAILED = {"action": "follower.copy_failed"}
