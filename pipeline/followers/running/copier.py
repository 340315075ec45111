"""Copies tables of a follower anew, in a thread beside its applier, which goes on with the other tables meanwhile."""

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
from pipeline.followers.registry import Follower, FollowerTable, Note, TableName
from pipeline.followers.running import beginning
from pipeline.followers.schema_changes import changed_types, form_adjustments, partitions
from pipeline.followers.schema_changes.copied_types import CopiedTypes
from pipeline.followers.schema_changes.renames import TableRenames
from pipeline.log.table import EventsTable
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.process.signals import LEAVE_SECONDS

logger = logging.getLogger(__name__)

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
"""Seconds before a copy that failed is tried again; each failure in a row doubles them."""
_PROGRAM = "pipeline copier"


class Copier:
    """Of one follower. The thread runs while there is something to copy, with connections of its own."""

    def __init__(self, config: Config, follower: int, name: str) -> None:
        """`follower`: the id of its row."""
        self._config, self._id, self._name = config, follower, name
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._sessions: list[Connection] = []
        self._tables: Sequence[TableName] = ()
        self._delays = dict[int, float]()
        self._not_before = dict[int, float]()
        self._said = dict[int, Note | None]()
        self._note_of: Callable[[PipelineError | psycopg.Error, TableName], Note]
        self.refused = dict[TableName, Note]()
        """Tables that are in no copy now, as something there needs to be done first."""
        self.placed = 0
        """How many copies have taken their place."""

    def __enter__(self) -> Copier:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ensure(self, tables: Sequence[TableName]) -> None:
        """Let it run, unless it does, or has failed just now. `tables`: those that are to be copied."""
        self._tables = tables
        if (self._thread is None or not self._thread.is_alive()) and time.monotonic() >= self._not_before.get(0, 0):
            self._stopped.clear()
            self._thread = threading.Thread(target=self._run, name="copier", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Let it end, and wait for that; the copy that was being made is as if it had not begun."""
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
            self._forgive(0)
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
        """Until nothing is to be copied any more. Raises CopyInterruptedError, and what ends its connections."""
        dsn = self._config.database
        with self._session(connections.connect(dsn, "pipeline database", name=_PROGRAM)) as log:
            try:
                self._copy_all(log, self._found(log))
            except (PipelineError, psycopg.Error) as error:
                if self._goes_on() and not log.broken:
                    for table in self._tables:
                        self._say(log, table, Note(f"cannot be copied: {connections.one_line(error)}"))
                raise

    def _copy_all(self, log: Connection, found: Follower) -> None:
        config = self._config
        there = beginning.applier_session(found, _PROGRAM)
        with self._session(there) as follower, self._session(beginning.connect_source(config)) as source:
            renames = beginning.renames(config, lambda: self._found(log))
            self._note_of = lambda error, table: refusals.note_of(error, follower, source, table.table_oid)
            types = CopiedTypes(log, found, renames, applies=True)

            def make_missing(table: TableName) -> None:
                if found.schema_mode == "create":
                    with beginning.plain_session(found) as session:
                        here = beginning.current_position(session, found)
                        missing_tables.make_whole(source, config.source_reading, session, here, table)
                types.bring(source, follower, table.table_oid)

            replacements = TableReplacements(
                log,
                follower,
                beginning.source_tables(config, log, found)(source),
                found,
                EventsTable.parse(config.events_table),
                go_on=self._goes_on,
                say=lambda table, reason: self._say(log, table, Note(reason) if reason else None),
                make_missing=make_missing,
                require_types=lambda table: types.require_same(source, follower, table.table_oid),
                fit=partial(form_adjustments.find, log, follower, source, found),
                renaming=renames,
            )

            def make(table: TableName, anew: RequestedCopy) -> None:
                _require_settled(log, follower, found, renames, table)
                _finish(self._session, follower, found, table)
                with changed_types.following_types(config, log, follower, found):
                    replacements.make(table, anew)

            while pending := self._pending(log, follower, replacements):
                if not any(self._is_made(log, make, table, anew) for table, anew in pending):
                    self._stopped.wait(REST_SECONDS)
                if not self._goes_on():
                    raise CopyInterruptedError

    def _pending(
        self, log: Connection, follower: Connection, replacements: TableReplacements
    ) -> list[tuple[TableName, RequestedCopy]]:
        tables = beginning.called(follower, self._found(log))
        return [(tables[each.oid], each) for each in replacements.requested() if each.oid in tables]

    def _is_made(
        self, log: Connection, make: Callable[[TableName, RequestedCopy], None], table: TableName, anew: RequestedCopy
    ) -> bool:
        """Make a copy, where it is time; what is in the way of it is in the way of no other."""
        oid = table.table_oid
        if time.monotonic() < self._not_before.get(oid, 0):
            return False
        try:
            make(table, anew)
        except CopyDelayedError as error:
            self._say(log, table, Note(str(error)))
            return False
        except ApplierOvertakenError:
            return False
        except (StatementRefusedError, FollowerError) as error:
            self._failed(log, table, error)
            return False
        except psycopg.Error as error:
            if not self._goes_on():
                raise CopyInterruptedError from error
            if connections.is_gone(error) or connections.is_ours(error):
                raise
            self._failed(log, table, error)
            return False
        self._forgive(oid)
        self.placed += 1
        extra = {"action": "follower.copied"}
        logger.info("%s: table %s.%s was copied anew", self._name, table.table_schema, table.table_name, extra=extra)
        return True

    def _failed(self, log: Connection, table: TableName, error: PipelineError | psycopg.Error) -> None:
        if not self._goes_on():
            raise CopyInterruptedError
        is_passing = isinstance(error, psycopg.Error) and refusals.is_passing(error)
        note = self._note_of(error, table)
        self._say(log, table, replace(note, state=None) if is_passing else note)
        self._delay(table.table_oid)

    def _found(self, log: Connection) -> Follower:
        found = next((each for each in registry.find(log, self._name) if each.id == self._id), None)
        if found is None:
            raise CopyInterruptedError
        return found

    def _say(self, log: Connection, table: TableName, note: Note | None) -> None:
        """Say that it is copied, and why it waits or is stopped, once."""
        if table.table_oid in self._said and self._said[table.table_oid] == note:
            return
        said = FollowerTable.of(table, "copying", note)
        registry.report_tables(log, self._id, [said])
        self._said[table.table_oid] = note
        self.refused = {each: why for each, why in self.refused.items() if each.table_oid != table.table_oid}
        if note is not None:
            self.refused |= {table: note} if said.state == "stopped" else {}
            extra = {"action": "follower.copy_waits"}
            name, reason = f"{table.table_schema}.{table.table_name}", note.reason
            logger.info("%s: table %s %s", self._name, name, reason, extra=extra)

    @contextmanager
    def _session(self, connection: Connection) -> Iterator[Connection]:
        """One of which `stop` ends what it waits for."""
        self._sessions.append(connection)
        try:
            with connection:
                yield connection
        finally:
            self._sessions.remove(connection)

    def _goes_on(self) -> bool:
        return not self._stopped.is_set()

    def _delay(self, of: int) -> None:
        """`of`: a table, or 0 for all of it."""
        delay = self._delays.get(of, FIRST_DELAY)
        self._not_before[of], self._delays[of] = time.monotonic() + delay, min(2 * delay, LONGEST_DELAY)

    def _forgive(self, of: int) -> None:
        self._delays.pop(of, None)
        self._not_before.pop(of, None)


def _require_settled(
    log: Connection, follower: Connection, found: Follower, renames: TableRenames, table: TableName
) -> None:
    """Raises FollowedTablesChangedError if tables have other names by now, CopyDelayedError where the table is still a
    partition.
    """
    if renames.follow_missing_tables(log, follower):
        raise FollowedTablesChangedError(f"tables of follower {found.name} are called otherwise, or were dropped")
    if not partitions.detach_before_copy(log, follower, found, table, renames.called(follower).values()):
        raise CopyDelayedError("is still a partition of another table where the follower is")


def _finish(
    entered: Callable[[Connection], AbstractContextManager[Connection]],
    follower: Connection,
    found: Follower,
    table: TableName,
) -> None:
    """Make what is left of a table that its first copy could not have. Raises FollowerError."""
    here = beginning.current_position(follower, found)
    if table.table_oid in pending_statements.unfinished_tables(follower, here):
        with entered(beginning.plain_session(found)) as session:
            for error in pending_statements.finish(session, here, {table.table_oid: table}).values():
                raise error


_FAILED = {"action": "follower.copy_failed"}
