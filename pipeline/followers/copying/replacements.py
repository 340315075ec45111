"""Copies tables of a follower anew while its other tables follow the log, and lets each take its place at once.

The copy is as of a snapshot S of the source, as one that is made before the log is applied. Meanwhile the applier goes
on, and passes over what the log has of the table. So in the transaction that lets the copy take its place, the log is
applied to it: from where the follower was before S was taken up to where it is by then. Only for the last part of
that, which is short, the applier has to wait.
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
from pipeline.followers.applying.applier import Applier
from pipeline.followers.applying.copied import Copied
from pipeline.followers.applying.followed_tables import Wanted
from pipeline.followers.applying.position import Position
from pipeline.followers.applying.table_versions import Formed, Place
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
from pipeline.followers.registry import Follower, TableName
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

NEAR = 1000
"""So many seqs of the log may be left while the applier waits."""
ROUNDS = 10
"""After so many without it, it has to wait however many are left."""
_ROOM = "followers.copying"


class FormAdjuster(Protocol):
    """Gives a table the form of its copy, as `FormAdjustment` of `pipeline.followers.schema_changes` does."""

    @property
    def called(self) -> tuple[str, str]: ...
    @property
    def is_needed(self) -> bool: ...
    def applied(self, description: Mapping[str, Any]) -> dict[str, Any]: ...
    def before(self, description: Mapping[str, Any], columns: Collection[str]) -> list[str]: ...
    def alter_empty(self, identifier: sql.Identifier) -> None: ...
    def alter(self, replaced: Callable[[], None]) -> None: ...


class PlannedRenames(Protocol):
    """What happens to names, as `pipeline.followers.schema_changes.table_names.NameChanges` has it."""

    @property
    def gone(self) -> Collection[int]: ...


class TableRenamer(Protocol):
    """Renames tables, as `pipeline.followers.schema_changes.renames.TableRenames` does."""

    def is_called(self, follower: Connection, table: TableName) -> bool: ...
    def plan(self, follower: Connection, targets: Mapping[int, tuple[str, str]]) -> PlannedRenames: ...
    def require_possible(self, follower: Connection, oid: int, target: tuple[str, str]) -> None: ...
    def carry_out(self, session: Connection, here: Position, moves: Any) -> None: ...
    def forget(self, log: Connection, gone: Collection[int]) -> None: ...


class TableReplacements:
    """Of one follower; all connections are its own, `follower` one whose session is that of an applier."""

    def __init__(
        self,
        log: Connection,
        follower: Connection,
        source: SourceTables,
        registration: Follower,
        events_table: EventsTable,
        *,
        go_on: Callable[[], bool],
        say: Callable[[TableName, str | None], None],
        make_missing: Callable[[TableName], None],
        require_types: Callable[[TableName], None],
        fit: Callable[[TableName, Place, Collection[str]], FormAdjuster],
        renaming: TableRenamer,
    ) -> None:
        """`go_on` returns False once the copy must end; it is called often. `say` gets each table that is copied, and
        why a table has to wait.

        `make_missing` makes a table that the follower lacks, if the settings allow it, and gives the types of its
        values what the source's types have. `require_types` raises CopyDelayedError if a type was altered since.
        `fit` compares the form that a table had at a place of the log with these columns at the source.
        """
        self._log, self._follower, self._source, self._registration = log, follower, source, registration
        self._events_table, self._go_on, self._say, self._make_missing = events_table, go_on, say, make_missing
        self._require_types, self._fit, self._renaming = require_types, fit, renaming
        self._begins = dict[int, Position]()

    def requested(self) -> list[RequestedCopy]:
        """The tables that are to be copied anew."""
        return copies.requested(self._follower, self._here())

    def make(self, table: TableName, anew: RequestedCopy) -> None:
        """Copy one of these tables, and let the copy take the place of its rows.

        Raises CopyDelayedError if the copy has to wait: call again later. Raises CopyInterruptedError,
        ApplierOvertakenError if another copy of the table was made or requested in the meantime, and other errors that
        prevent the copy. After an error, the table is unchanged.
        """
        self._require_wanted()
        # Before it is looked at who writes: what the log had by then is in the copy.
        begins = self._begins.setdefault(table.table_oid, self._here())
        self._require_kept(table, begins)
        relations = self._source.relations_at_rest(table.table_oid)
        del self._begins[table.table_oid]
        self._say(table, None)
        if not relations:  # dropped at the source: its rows stay, and the log has nothing more of it
            with self._source.reading(table.table_oid, relations) as copied:
                pass
            with self._follower.transaction():
                copies.finish_replacement(self._follower, self._held(), anew, copied, 0)
            return
        self._make_missing(table)
        there = describe_existing(self._follower, table)
        if anew.is_first and not self._registration.truncates:
            require_empty(self._follower, table, partitioned=there["partitioned"])
        fitting = self._fit(table, anew.formed, {name for each in relations for name in each.columns or ()})
        self._renaming.require_possible(self._follower, table.table_oid, fitting.called)
        fitted = fitting.applied(there)
        columns = [copied_columns(table, relation, fitted) for relation in relations]
        listed = list(dict.fromkeys(name for names in columns for name in names))
        with closing(self._staged(table, fitted, listed, fitting.before(there, listed))) as staged:
            fitting.alter_empty(staged.into)
            copied, rows = self._read(table, relations, columns, staged)
            self._replace(table, anew, staged, fitting, copied, rows, begins)

    def _require_kept(self, table: TableName, begins: Position) -> None:
        """Raise CopyDelayedError if the log lacks events after this position: only copies of all tables help then."""
        if begins.seq < int(queries.value(self._log, "select pipeline.log_floor()")):
            del self._begins[table.table_oid]
            raise CopyDelayedError(
                "waits until all tables are to be copied anew, as the log does not reach back to where the follower is"
            )

    def _staged(
        self, table: TableName, description: dict[str, Any], columns: Sequence[str], before: Sequence[str]
    ) -> StagedRows:
        identifier = sql.Identifier(table.table_schema, table.table_name)
        try:
            with self._follower.transaction(), queries.lock_timeout(self._follower, LOCK_TIMEOUT):
                return StagedRows(self._follower, identifier, description, columns, before)
        except psycopg.errors.LockNotAvailable as error:
            raise CopyDelayedError(self._waits(table)) from error

    def _waits(self, table: TableName) -> str:
        name = sql.Identifier(table.table_schema, table.table_name).as_string(self._follower)
        oid = queries.value(self._follower, statement(_ROOM, "follower_oid"), {"table": name})
        return f"waits for {describe_holder(self._follower, oid)}, which uses it at the follower"

    def _read(
        self,
        table: TableName,
        relations: Sequence[SourceRelation],
        columns: Sequence[Sequence[str]],
        staged: StagedRows,
    ) -> tuple[Copied, int]:
        """The rows as of a snapshot, staged; and how many there are."""
        with self._source.reading(table.table_oid, relations) as copied:
            rows = sum(
                copy_rows(self._source, relation, names, self._follower, staged.into, self._require_wanted)
                for relation, names in zip(relations, columns, strict=True)
            )
        self._require_types(table)
        staged.prepare()
        return copied, rows

    def _replace(
        self,
        table: TableName,
        anew: RequestedCopy,
        staged: StagedRows,
        fitting: FormAdjuster,
        copied: Copied,
        rows: int,
        begins: Position,
    ) -> None:
        formed = Formed(copied.place, copied.form)
        wanted = Wanted(table.table_schema, table.table_name, formed=formed, copied=copied)
        with self._follower.transaction():
            # Who else is at it has placed a copy by then, or is at its end.
            self._follower.execute(statement(_ROOM, "wait_for_placing"), self._known_as)
            if anew not in self.requested():
                raise Overtaken(f"table {table.table_schema}.{table.table_name} was copied by another applier")
            self._put(table, staged, fitting)
            gone = self._place(table, anew, wanted, begins, rows, fitting.called)
        self._renaming.forget(self._log, gone)

    def _put(self, table: TableName, staged: StagedRows, fitting: FormAdjuster) -> None:
        """The rows in the place of those of before, in their form, despite our checks. Who locks one is waited for."""
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
                if replace != staged.replace or not checks.are_made(self._follower, self._here(), table):
                    raise
                replace = partial(checks.run_without, self._follower, self._here(), table, staged.replace)
            except (psycopg.errors.LockNotAvailable, SchemaChangeError) as error:
                _require_lock_alone(error)
                self._say(table, self._waits(table))

    def _hold_name(self, table: TableName) -> None:
        """Prevent renames of the table until the transaction ends. Raises CopyDelayedError if it was renamed."""
        lock = sql.SQL("lock table only {} in row exclusive mode")
        if self._renaming.is_called(self._follower, table):
            self._follower.execute(lock.format(sql.Identifier(table.table_schema, table.table_name)))
        if not self._renaming.is_called(self._follower, table):
            raise CopyDelayedError("it was renamed at the follower just now")

    def _place(
        self,
        table: TableName,
        anew: RequestedCopy,
        wanted: Wanted,
        begins: Position,
        rows: int,
        called: tuple[str, str],
    ) -> Collection[int]:
        """Bring it from there to where the follower is, and let it follow the log from then on, under this name.

        Returns tables that are to be forgotten.
        """
        applier, rounds = self._applier(table, wanted, begins), 0
        while True:
            rounds += 1
            reached = applier.position
            try:
                with self._follower.transaction(), queries.lock_timeout(self._follower, LOCK_TIMEOUT):
                    self._bring(applier, self._here())
                reached = applier.position
                self._say(table, None)
                # Together with the transaction that is around it, or not at all: then the follower's applier goes on.
                with self._follower.transaction() as last:
                    here = self._held()
                    if here.seq - reached.seq > NEAR and rounds < ROUNDS:
                        raise psycopg.Rollback(last)
                    with queries.lock_timeout(self._follower, LOCK_TIMEOUT):
                        self._bring(applier, here)
                        moves = self._renaming.plan(self._follower, {table.table_oid: called})
                        self._renaming.carry_out(self._follower, here, moves)
                    assert wanted.copied is not None  # noqa: S101  it was made so
                    self._require_epoch(wanted.copied)
                    copies.finish_replacement(self._follower, here, anew, wanted.copied, rows)
                    return moves.gone
            except (StatementRefusedError, SchemaChangeError) as error:
                _require_lock_alone(error)
                self._say(table, self._waits(table))
                applier = self._applier(table, wanted, reached)

    def _applier(self, table: TableName, wanted: Wanted, begins: Position) -> Applier:
        return Applier(
            self._log,
            self._follower,
            self._registration.source_id,
            self._registration.name,
            {table.table_oid: wanted},
            events_table=self._events_table,
            begins=begins,
        )

    def _bring(self, applier: Applier, here: Position) -> None:
        while applier.position.seq < here.seq and applier.apply(here.seq) is not None:
            self._require_wanted()

    def _require_epoch(self, copied: Copied) -> None:
        """A copy that was read while the source became another begins anew."""
        values = {"source": self._registration.source_id}
        if queries.value(self._log, statement(_ROOM, "source_epoch"), values) != copied.source_epoch:
            raise DatabaseUnavailableError(
                "the history of the source has changed while a table was copied: that begins anew"
            )

    def _here(self) -> Position:
        return position.existing(self._follower, self._registration.source_id, self._registration.name)

    def _held(self) -> Position:
        return position.existing(self._follower, self._registration.source_id, self._registration.name, held=True)

    @property
    def _known_as(self) -> dict[str, str]:
        return {"source": str(self._registration.source_id), "follower": self._registration.name}

    def _require_wanted(self) -> None:
        if not self._go_on():
            raise CopyInterruptedError


def _require_lock_alone(error: Exception) -> None:
    """Raises the error again, unless it is only a lock of another session that was waited for too long."""
    if not isinstance(error.__cause__ or error, psycopg.errors.LockNotAvailable):
        raise error
