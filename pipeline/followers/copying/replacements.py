"""Copies tables of a follower again while its other tables follow the log. A new copy replaces the rows of its table.

A copy has the rows as of a snapshot S of the source. While it is made, the applier continues and skips the table's
events. So the transaction that replaces the rows also applies these events to them: from the position that the follower
had before S was taken, up to its current position. The applier waits only during the last, short part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Protocol

import psycopg
from psycopg import sql

from pipeline.errors import ApplierOvertakenError, DatabaseUnavailableError, SchemaChangeError, StatementRefusedError
from pipeline.followers.applying import position
from pipeline.followers.applying.applier import LogApplier
from pipeline.followers.applying.followed_tables import TableToFollow
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.snapshot_copy import SnapshotCopy
from pipeline.followers.applying.table_versions import HistoryPlace, ReachedVersion
from pipeline.followers.copying import checks, copies
from pipeline.followers.copying.copies import RequestedCopy
from pipeline.followers.copying.source_tables import (
    LOCK_TIMEOUT,
    CopyDelayedError,
    SourceRelation,
    SourceTables,
    describe_holder,
)
from pipeline.followers.copying.staged_rows import StagedRows
from pipeline.followers.copying.table_copies import (
    CopyInterruptedError,
    copied_columns,
    copy_rows,
    describe_existing,
    require_empty,
)
from pipeline.followers.registry import NamedTable, RegisteredFollower
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

NEAR = 1000
"""The most seqs of the log that are applied while the applier waits, unless the rounds are used up."""
ROUNDS = 10
"""The number of rounds after which the applier has to wait, no matter how many seqs remain."""
_ROOM = "followers.copying"


class TableAdjuster(Protocol):
    """Alters a table to its copy's definition, as `TableAdjustment` of `pipeline.followers.schema_changes` does."""

    @property
    def called(self) -> tuple[str, str]: ...
    @property
    def is_needed(self) -> bool: ...
    def applied(self, description: Mapping[str, Any]) -> dict[str, Any]: ...
    def before(self, description: Mapping[str, Any], columns: Collection[str]) -> list[str]: ...
    def alter_empty(self, identifier: sql.Identifier) -> None: ...
    def alter(self, replace_rows: Callable[[], None]) -> None: ...


class PlannedRenames(Protocol):
    """Planned changes of names, as `NameChanges` of `pipeline.followers.schema_changes`."""

    @property
    def gone(self) -> Collection[int]: ...


class TableRenamer(Protocol):
    """Renames tables, as `TableRenames` of `pipeline.followers.schema_changes` does."""

    def is_called(self, follower: Connection, table: NamedTable) -> bool: ...
    def plan(self, follower: Connection, targets: Mapping[int, tuple[str, str]]) -> PlannedRenames: ...
    def require_possible(self, follower: Connection, oid: int, target: tuple[str, str]) -> None: ...
    def carry_out(self, session: Connection, here: FollowerPosition, moves: Any) -> None: ...
    def forget(self, log: Connection, gone: Collection[int]) -> None: ...


class TableReplacements:
    """Replaces tables of one follower by new copies. No other code uses its connections.

    The session of `follower` has the settings of an applier.
    """

    def __init__(
        self,
        log: Connection,
        follower: Connection,
        source: SourceTables,
        registration: RegisteredFollower,
        events_table: EventsTable,
        *,
        go_on: Callable[[], bool],
        say: Callable[[NamedTable, str | None], None],
        make_missing: Callable[[NamedTable], None],
        require_types: Callable[[NamedTable], None],
        fit: Callable[[NamedTable, HistoryPlace, Collection[str]], TableAdjuster],
        renaming: TableRenamer,
    ) -> None:
        """Prepare the copies of one follower's tables.

        - `go_on`: called often; returns False once the copy must end.
        - `say`: reports a table that is being copied, or why it has to wait.
        - `make_missing`: creates a table that the follower lacks, if the settings allow this, and alters the types of
          its values as at the source.
        - `require_types`: raises CopyDelayedError if such a type was altered since.
        - `fit`: returns how the version that a table had at this place must be altered to have these columns.
        """
        self._log, self._follower, self._source, self._registration = log, follower, source, registration
        self._events_table, self._go_on, self._say, self._make_missing = events_table, go_on, say, make_missing
        self._require_types, self._fit, self._renaming = require_types, fit, renaming
        self._begins = dict[int, FollowerPosition]()

    def requested(self) -> list[RequestedCopy]:
        """Return the requested copies."""
        return copies.requested(self._follower, self._here())

    def make(self, table: NamedTable, request: RequestedCopy) -> None:
        """Copy one of these tables, and replace its rows by those of the copy.

        Raises CopyDelayedError if the copy has to wait: call again later. Raises CopyInterruptedError,
        ApplierOvertakenError if another copy of the table was made or requested in the meantime, and other errors that
        prevent the copy. After an error, the table is unchanged.
        """
        self._require_wanted()
        # Read the position before the writers: what the log had by then is in the copy.
        begins = self._begins.setdefault(table.table_oid, self._here())
        self._require_kept(table, begins)
        relations = self._source.relations_at_rest(table.table_oid)
        del self._begins[table.table_oid]
        self._say(table, None)
        if not relations:  # the source dropped the table: its rows stay, and the log gets no more events of it
            with self._source.reading(table.table_oid, relations) as copy:
                pass
            with self._follower.transaction():
                copies.finish_replacement(self._follower, self._held(), request, copy, 0)
            return
        self._make_missing(table)
        there = describe_existing(self._follower, table)
        if request.is_first and not self._registration.truncates:
            require_empty(self._follower, table, partitioned=there["partitioned"])
        fitting = self._fit(table, request.version_place, {name for each in relations for name in each.columns or ()})
        self._renaming.require_possible(self._follower, table.table_oid, fitting.called)
        fitted = fitting.applied(there)
        columns = [copied_columns(table, relation, fitted) for relation in relations]
        listed = list(dict.fromkeys(name for names in columns for name in names))
        with closing(self._staged(table, fitted, listed, fitting.before(there, listed))) as staged:
            fitting.alter_empty(staged.into)
            copy, rows = self._read(table, relations, columns, staged)
            self._replace(table, request, staged, fitting, copy, rows, begins)

    def _require_kept(self, table: NamedTable, begins: FollowerPosition) -> None:
        """Raise CopyDelayedError if the log lacks events after this position, so that all tables must be copied."""
        if begins.seq < int(queries.value(self._log, "select pipeline.log_floor()")):
            del self._begins[table.table_oid]
            raise CopyDelayedError(
                "waits until all tables are copied again, as the log does not reach back to the follower's position"
            )

    def _staged(
        self, table: NamedTable, description: dict[str, Any], columns: Sequence[str], before: Sequence[str]
    ) -> StagedRows:
        identifier = sql.Identifier(table.table_schema, table.table_name)
        try:
            with self._follower.transaction(), queries.lock_timeout(self._follower, LOCK_TIMEOUT):
                return StagedRows(self._follower, identifier, description, columns, before)
        except psycopg.errors.LockNotAvailable as error:
            raise CopyDelayedError(self._waits(table)) from error

    def _waits(self, table: NamedTable) -> str:
        name = sql.Identifier(table.table_schema, table.table_name).as_string(self._follower)
        oid = queries.value(self._follower, statement(_ROOM, "follower_oid"), {"table": name})
        return f"waits for {describe_holder(self._follower, oid)}, which uses it at the follower"

    def _read(
        self,
        table: NamedTable,
        relations: Sequence[SourceRelation],
        columns: Sequence[Sequence[str]],
        staged: StagedRows,
    ) -> tuple[SnapshotCopy, int]:
        """Stage the rows as of a snapshot; returns the copy and the number of its rows."""
        with self._source.reading(table.table_oid, relations) as copy:
            rows = sum(
                copy_rows(self._source, relation, names, self._follower, staged.into, self._require_wanted)
                for relation, names in zip(relations, columns, strict=True)
            )
        self._require_types(table)
        staged.prepare()
        return copy, rows

    def _replace(
        self,
        table: NamedTable,
        request: RequestedCopy,
        staged: StagedRows,
        fitting: TableAdjuster,
        copy: SnapshotCopy,
        rows: int,
        begins: FollowerPosition,
    ) -> None:
        reached = ReachedVersion(copy.place, copy.columns)
        wanted = TableToFollow(table.table_schema, table.table_name, reached=reached, copy=copy)
        with self._follower.transaction():
            # Once this lock is granted, any other session that was replacing rows of the table has ended.
            self._follower.execute(statement(_ROOM, "lock_replacements"), self._known_as)
            if request not in self.requested():
                raise ApplierOvertakenError(
                    f"table {table.table_schema}.{table.table_name} was copied by another applier"
                )
            self._replace_rows(table, staged, fitting)
            gone = self._catch_up(table, request, wanted, begins, rows, fitting.called)
        self._renaming.forget(self._log, gone)

    def _replace_rows(self, table: NamedTable, staged: StagedRows, fitting: TableAdjuster) -> None:
        """Alter the table and replace its rows by the staged ones, even if these violate recorded checks.

        This waits for other sessions that lock the table.
        """
        replace: Callable[[], None] = staged.replace
        while True:
            self._require_wanted()
            try:
                with self._follower.transaction(), queries.lock_timeout(self._follower, LOCK_TIMEOUT):
                    self._hold_name(table)
                    if fitting.is_needed:
                        fitting.alter(replace)
                    else:
                        replace()
                    return
            except (psycopg.errors.CheckViolation, psycopg.errors.NotNullViolation):
                if replace != staged.replace or not checks.are_recorded(self._follower, self._here(), table):
                    raise
                replace = partial(checks.run_without, self._follower, self._here(), table, staged.replace)
            except (psycopg.errors.LockNotAvailable, SchemaChangeError) as error:
                _require_lock_alone(error)
                self._say(table, self._waits(table))

    def _hold_name(self, table: NamedTable) -> None:
        """Prevent renames of the table until the transaction ends. Raises CopyDelayedError if it was renamed."""
        lock = sql.SQL("lock table only {} in row exclusive mode")
        if self._renaming.is_called(self._follower, table):
            self._follower.execute(lock.format(sql.Identifier(table.table_schema, table.table_name)))
        if not self._renaming.is_called(self._follower, table):
            raise CopyDelayedError("the table was renamed at the follower just now")

    def _catch_up(
        self,
        table: NamedTable,
        request: RequestedCopy,
        wanted: TableToFollow,
        begins: FollowerPosition,
        rows: int,
        called: tuple[str, str],
    ) -> Collection[int]:
        """Apply the log to the replaced rows from `begins` up to the follower's position, and rename the table.

        Returns the tables that are no longer followed.
        """
        applier, rounds = self._applier(table, wanted, begins), 0
        while True:
            rounds += 1
            reached = applier.position
            try:
                with self._follower.transaction(), queries.lock_timeout(self._follower, LOCK_TIMEOUT):
                    self._apply_up_to(applier, self._here())
                reached = applier.position
                self._say(table, None)
                # This commits with the outer transaction, or is rolled back, and then the follower's applier continues.
                with self._follower.transaction() as last:
                    here = self._held()
                    if here.seq - reached.seq > NEAR and rounds < ROUNDS:
                        raise psycopg.Rollback(last)
                    with queries.lock_timeout(self._follower, LOCK_TIMEOUT):
                        self._apply_up_to(applier, here)
                        moves = self._renaming.plan(self._follower, {table.table_oid: called})
                        self._renaming.carry_out(self._follower, here, moves)
                    assert wanted.copy is not None  # noqa: S101  the caller has set it
                    self._require_epoch(wanted.copy)
                    copies.finish_replacement(self._follower, here, request, wanted.copy, rows)
                    return moves.gone
            except (StatementRefusedError, SchemaChangeError) as error:
                _require_lock_alone(error)
                self._say(table, self._waits(table))
                applier = self._applier(table, wanted, reached)

    def _applier(self, table: NamedTable, wanted: TableToFollow, begins: FollowerPosition) -> LogApplier:
        return LogApplier(
            self._log,
            self._follower,
            self._registration.source_id,
            self._registration.name,
            {table.table_oid: wanted},
            events_table=self._events_table,
            begins=begins,
        )

    def _apply_up_to(self, applier: LogApplier, here: FollowerPosition) -> None:
        while applier.position.seq < here.seq and applier.apply(here.seq) is not None:
            self._require_wanted()

    def _require_epoch(self, copy: SnapshotCopy) -> None:
        """Raise DatabaseUnavailableError if the source began another epoch while the copy was read."""
        values = {"source": self._registration.source_id}
        if queries.value(self._log, statement(_ROOM, "source_epoch"), values) != copy.source_epoch:
            raise DatabaseUnavailableError(
                "the history of the source has changed while a table was copied: the copy starts again"
            )

    def _here(self) -> FollowerPosition:
        return position.require_existing(self._follower, self._registration.source_id, self._registration.name)

    def _held(self) -> FollowerPosition:
        return position.require_existing(
            self._follower, self._registration.source_id, self._registration.name, held=True
        )

    @property
    def _known_as(self) -> dict[str, str]:
        return {"source": str(self._registration.source_id), "follower": self._registration.name}

    def _require_wanted(self) -> None:
        if not self._go_on():
            raise CopyInterruptedError


def _require_lock_alone(error: Exception) -> None:
    """Raise the error again, unless the only cause is a lock of another session."""
    if not isinstance(error.__cause__ or error, psycopg.errors.LockNotAvailable):
        raise error
