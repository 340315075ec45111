"""Alters tables that DDL changed at the source after the follower's were created or found, and before their first copy.

The log is not applied yet, and the tables are empty. Each gets the form of its copy in a separate transaction before
the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager

from pipeline.followers.applying import position
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import HistoryPlace
from pipeline.followers.copying import checks, copies, pending_statements
from pipeline.followers.copying.source_forms import SourceForm
from pipeline.followers.copying.source_tables import CopyDelayedError
from pipeline.followers.registry import NamedTable, RegisteredFollower
from pipeline.followers.schema_changes import form_adjustments
from pipeline.followers.schema_changes.copied_types import CopiedTypes
from pipeline.followers.schema_changes.form_adjustments import FormAdjustment
from pipeline.followers.schema_changes.renames import TableRenames
from pipeline.followers.schema_changes.table_names import NameChanges
from pipeline.postgres.connections import Connection


class FirstForms:
    """Gives tables of one follower their first forms. May be used by several threads, each with its own connections."""

    def __init__(
        self,
        log: Connection,
        registration: RegisteredFollower,
        renames: TableRenames,
        session: Callable[[], AbstractContextManager[Connection]],
    ) -> None:
        """`session`: opens a session that no other code uses, because its settings change."""
        self._log, self._registration, self._renames, self._session = log, registration, renames, session
        self._types = CopiedTypes(log, registration, renames, applies=False)

    def align(
        self, source: Connection, follower: Connection, table: NamedTable, published: Collection[str]
    ) -> NamedTable:
        """Give a table the source's current name and form; returns its name then.

        `published`: the columns that will be copied. Raises SchemaChangeError if the follower refuses a statement, or
        the settings forbid to follow.
        """
        self._types.align(source, follower, table.table_oid)
        needed, moves = self._needed(source, follower, table, published)
        if (form := needed.form) is None:  # the source has dropped the table
            return table
        if needed.is_needed or moves.names:
            with self._session() as session, session.transaction():
                session.execute("set search_path = ''")
                copies.lock(session, self._here(session), {form.oid, *moves.names})
                copies.claim(session, self._here(session), form.oid)
                # Another session may have renamed the tables by now, and a second exchange of names would undo it.
                needed, now = self._needed(source, session, table, published)
                if (form := needed.form) is None or now != moves:
                    raise CopyDelayedError("the table was renamed just now")
                self._alter(session, needed, form, moves)
            self._renames.forget(self._log, moves.gone)
        return NamedTable(form.oid, *form.called)

    def _needed(
        self, source: Connection, follower: Connection, table: NamedTable, published: Collection[str]
    ) -> tuple[FormAdjustment, NameChanges]:
        """Return the alterations that a table needs, and the changes of names."""
        oid, formed = table.table_oid, _formed(self._here(follower))
        here = NamedTable(oid, *self._renames.called(follower)[oid])
        needed = form_adjustments.find(self._log, follower, source, self._registration, here, formed, published)
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
        needed: FormAdjustment,
        form: SourceForm,
        moves: NameChanges,
    ) -> None:
        here = self._here(session)
        moved, made = dict[int, NamedTable](), set[int]()
        if moves.names or needed.moves_columns:
            # Keys, indexes and checks are stored as statements for the tables as they were created.
            moved = {oid: NamedTable(oid, *name) for oid, name in {form.oid: form.called, **moves.names}.items()}
            made = moved.keys() & pending_statements.unfinished_tables(session, here)
            for error in pending_statements.finish(session, here, moved).values():
                raise error
        self._renames.carry_out(session, here, moves)
        needed.at(session, NamedTable(form.oid, *form.called)).alter(lambda: None)
        for oid in made:
            pending_statements.store(session, here, oid, checks.take_off(session, here, moved[oid]))
        copies.store_form(session, here, form)

    def _here(self, follower: Connection) -> FollowerPosition:
        return position.require_existing(follower, self._registration.source_id, self._registration.name)


def _formed(here: FollowerPosition) -> HistoryPlace:
    """Return the place of the form that the history has of a table that existed before the follower was added."""
    return HistoryPlace(here.source_epoch, here.commit_lsn or 0, 2**31 - 1)
