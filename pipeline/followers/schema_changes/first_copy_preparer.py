"""Prepares tables for their first copy: gives them the current names and definitions of the source's tables.

DDL may have changed the source's tables since the follower's tables were created. The log is not applied yet, and the
tables are empty. Each is altered in a separate transaction before its copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager

from pipeline.followers.applying import position
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import HistoryPlace
from pipeline.followers.copying import checks, copies, pending_statements
from pipeline.followers.copying.source_definitions import SourceDefinition
from pipeline.followers.copying.source_tables import CopyDelayedError
from pipeline.followers.registry import NamedTable, RegisteredFollower
from pipeline.followers.schema_changes import table_adjustments
from pipeline.followers.schema_changes.renames import TableRenames
from pipeline.followers.schema_changes.table_adjustments import TableAdjustment
from pipeline.followers.schema_changes.table_names import NameChanges
from pipeline.followers.schema_changes.type_preparer import TypePreparer
from pipeline.postgres.connections import Connection


class FirstCopyPreparer:
    """Prepares the tables of one follower. May be used by several threads, each with its own connections."""

    def __init__(
        self,
        log: Connection,
        registration: RegisteredFollower,
        renames: TableRenames,
        session: Callable[[], AbstractContextManager[Connection]],
    ) -> None:
        """`session`: opens a session that no other code uses, because its settings change."""
        self._log, self._registration, self._renames, self._session = log, registration, renames, session
        self._types = TypePreparer(log, registration, renames, applies=False)

    def align(
        self, source: Connection, follower: Connection, table: NamedTable, published: Collection[str]
    ) -> NamedTable:
        """Give a table the source's current name and definition; returns the table under its new name.

        `published`: the columns that will be copied. Raises SchemaChangeError if the follower refuses a statement, or
        the settings forbid to follow.
        """
        self._types.align(source, follower, table.table_oid)
        needed, moves = self._needed(source, follower, table, published)
        if (wanted := needed.definition) is None:  # the source has dropped the table
            return table
        if needed.is_needed or moves.names:
            with self._session() as session, session.transaction():
                session.execute("set search_path = ''")
                copies.lock(session, self._here(session), {wanted.oid, *moves.names})
                copies.claim(session, self._here(session), wanted.oid)
                # Another session may have renamed the tables by now, and a second exchange of names would undo it.
                needed, now = self._needed(source, session, table, published)
                if (wanted := needed.definition) is None or now != moves:
                    raise CopyDelayedError("the table was renamed just now")
                self._alter(session, needed, wanted, moves)
            self._renames.forget(self._log, moves.gone)
        return NamedTable(wanted.oid, *wanted.called)

    def _needed(
        self, source: Connection, follower: Connection, table: NamedTable, published: Collection[str]
    ) -> tuple[TableAdjustment, NameChanges]:
        """Return the alterations that a table needs, and the changes of names."""
        oid, place = table.table_oid, _version_place(self._here(follower))
        here = NamedTable(oid, *self._renames.called(follower)[oid])
        needed = table_adjustments.find(self._log, follower, source, self._registration, here, place, published)
        return needed, self._renames.plan(follower, {oid: needed.called})

    def is_called(self, follower: Connection, table: NamedTable) -> bool:
        """Return True if the table still has this name: another table may have taken it."""
        return self._renames.is_called(follower, table)

    def require_types(self, source: Connection, follower: Connection, table: NamedTable) -> None:
        """Raise CopyDelayedError if a type of the table's values was altered since `align`."""
        self._types.require_same(source, follower, table.table_oid)

    def _alter(
        self,
        session: Connection,
        needed: TableAdjustment,
        wanted: SourceDefinition,
        moves: NameChanges,
    ) -> None:
        here = self._here(session)
        moved, made = dict[int, NamedTable](), set[int]()
        if moves.names or needed.moves_columns:
            # Keys, indexes and checks are stored as statements for the tables as they were created.
            moved = {oid: NamedTable(oid, *name) for oid, name in {wanted.oid: wanted.called, **moves.names}.items()}
            made = moved.keys() & pending_statements.unfinished_tables(session, here)
            for error in pending_statements.finish(session, here, moved).values():
                raise error
        self._renames.carry_out(session, here, moves)
        needed.at(session, NamedTable(wanted.oid, *wanted.called)).alter(lambda: None)
        for oid in made:
            pending_statements.store(session, here, oid, checks.drop_all(session, here, moved[oid]))
        copies.store_definition(session, here, wanted)

    def _here(self, follower: Connection) -> FollowerPosition:
        return position.require_existing(follower, self._registration.source_id, self._registration.name)


def _version_place(here: FollowerPosition) -> HistoryPlace:
    """Return the place of the version that a table has if it existed before the follower was added."""
    return HistoryPlace(here.source_epoch, here.commit_lsn or 0, 2**31 - 1)
