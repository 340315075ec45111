"""Gives a table that is copied again the source's current form, together with the rows of the copy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from pipeline.errors import SchemaChangeError
from pipeline.followers.applying import table_versions
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import COLUMN_PARTS, CopiedForm, HistoryPlace
from pipeline.followers.copying import copies, source_forms
from pipeline.followers.copying.source_forms import SourceForm
from pipeline.followers.registry import NamedTable, RegisteredFollower
from pipeline.followers.schema_changes import difference, last_forms, partitions, reached_versions
from pipeline.followers.schema_changes.alterations import AlterationBuilder, TableAlteration, run
from pipeline.followers.schema_changes.difference import ColumnForm, FormDifference
from pipeline.followers.schema_changes.partitions import SourcePartition, TablePartitions
from pipeline.postgres.connections import Connection


class FormAdjustment:
    """Changes one table from its present form to the form of its copy."""

    def __init__(
        self,
        follower: Connection,
        registration: RegisteredFollower,
        table: NamedTable,
        change: FormDifference,
        form: SourceForm | None,
        partitions: Sequence[SourcePartition] = (),
    ) -> None:
        """`form`: the form of the copy; None if the table was dropped. `partitions`: the partitions of the source."""
        self._follower, self._registration, self._change, self.form = follower, registration, change, form
        self._keys: Collection[list[str]] = form.keys if form else []
        self._called = (table.table_schema, table.table_name)
        self._partitions = partitions

    @property
    def called(self) -> tuple[str, str]:
        """The source's name of the table; if the source has dropped it, the follower's name."""
        return self.form.called if self.form else self._called

    def at(self, follower: Connection, table: NamedTable) -> FormAdjustment:
        """Return the same adjustment over another session, for the table under another name."""
        return FormAdjustment(follower, self._registration, table, self._change, self.form, self._partitions)

    @property
    def moves_columns(self) -> bool:
        """True if objects that were created for the previous columns, such as an index, may miss them afterwards."""
        change = self._change
        return bool(change.renamed or change.dropped or change.retyped or change.key is not None)

    @property
    def is_needed(self) -> bool:
        """True if there is any difference."""
        return self.moves_columns or bool(self._change.added) or self._divided.lacks(self._partitions)

    def applied(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """Return the description that `describe_tables` will give after the adjustment, from the present one."""
        change, dropped_key = self._change, set[str]()
        if change.key is not None and sorted(change.old_key) not in self._sorted_keys:
            dropped_key = set(change.old_key)
        columns = [
            {**column, "name": change.renamed.get(column["name"], column["name"])}
            for column in description["columns"]
            if column["name"] not in change.dropped
        ]
        names = {column["name"] for column in columns}
        columns += [{"name": each.name, "generated": False} for each in change.added if each.name not in names]
        keys = [
            {change.renamed.get(name, name): operator for name, operator in key.items()}
            for key in description["keys"]
            if key
        ]
        kept = [key for key in keys if key.keys() != dropped_key and not key.keys() & change.dropped.keys()]
        return {**description, "columns": columns, "keys": kept}

    def before(self, description: Mapping[str, Any], columns: Collection[str]) -> list[str]:
        """Return those of these columns that the table already has, by their names before the adjustment."""
        change = self._change
        return [
            column["name"]
            for column in description["columns"]
            if change.renamed.get(column["name"], column["name"]) in columns and column["name"] not in change.dropped
        ]

    def alter_empty(self, identifier: sql.Identifier) -> None:
        """Give a table without rows the columns of the copy; it has the columns that `before` returned."""
        altered = AlterationBuilder(self._follower, self._called, identifier, self._change.dropped)
        retyped = [each for each in self._change.retyped if altered.has(each.name, self._change)]
        self._run(altered.of_columns(replace(self._change, dropped={}, retyped=()), ()))
        self._run(altered.retype_empty(retyped))

    def alter(self, replaced: Callable[[], None]) -> None:
        """Give the table the form of the copy in the open transaction; `replaced` gives it the rows."""
        altered = AlterationBuilder(self._follower, self._called)
        self._run(altered.of_columns(replace(self._change, retyped=()), ()))
        for column in self._change.retyped:
            self._retype(altered, column)
        if self._divided.lacks(self._partitions):
            self._divided.follow(self._partitions)
        deferrable = self.form is not None and self.form.deferrable_key
        key = list(altered.of_key(self._change, self._keys, deferrable=deferrable))
        made = [each for each in key if each.makes_key]
        self._run([each for each in key if not each.makes_key])
        replaced()
        self._run(made)

    def _retype(self, altered: AlterationBuilder, column: ColumnForm) -> None:
        """Convert the old values to the new type if possible, else discard them: the copy's values replace them at
        once.
        """
        *attempts, last = altered.retyping_attempts(column)
        for each in attempts:
            try:
                with self._follower.transaction():
                    self._run([each])
                return
            except SchemaChangeError as error:
                if not isinstance(error.__cause__, _NO_CAST):
                    raise
        self._run([last])

    def _run(self, alterations: Sequence[TableAlteration]) -> None:
        run(self._follower, self._registration.name, self._called, alterations)

    @property
    def _divided(self) -> TablePartitions:
        return TablePartitions(self._follower, self._registration, self._called, ())

    @property
    def _sorted_keys(self) -> list[list[str]]:
        return [sorted(columns) for columns in self._keys]


def find(
    log: Connection,
    follower: Connection,
    source: Connection,
    registration: RegisteredFollower,
    table: NamedTable,
    formed: HistoryPlace,
    published: Collection[str],
) -> FormAdjustment:
    """Return the adjustment of a table that has the form of this place, and whose copy has these columns.

    Raises SchemaChangeError if the settings forbid the change.
    """
    now = source_forms.read(source, [table.table_oid]).get(table.table_oid)
    if now is None:
        return FormAdjustment(follower, registration, table, _NONE, None)
    change = _change(log, follower, registration, table, formed, now)
    # A copy does not contain columns that are not published, so the follower does not need them.
    left_out = {each.name for each in change.added} - set(published)
    change = replace(change, added=tuple(each for each in change.added if each.name not in left_out))
    form = replace(now, columns=[each for each in now.columns if each["name"] not in left_out])
    made = FormAdjustment(follower, registration, table, change, form, partitions.read(source, table.table_oid))
    if registration.ddl == "stop" and made.is_needed:
        altered = AlterationBuilder(follower, (table.table_schema, table.table_name)).of_columns(change, ())
        if altered:
            text = altered[0].as_text(follower)
            raise SchemaChangeError(f"{altered[0].what}, and --ddl is stop", f"`{text}` there")
    return made


def _change(
    log: Connection,
    follower: Connection,
    registration: RegisteredFollower,
    table: NamedTable,
    formed: HistoryPlace,
    now: SourceForm,
) -> FormDifference:
    """Return the difference between the table's form and the form of its copy.

    The table's form is the one with which it was created, or the one that the history has of this place.
    """
    begins = FollowerPosition(registration.source_id, registration.name)
    made = copies.find_form(follower, begins, table.table_oid)
    stored = reached_versions.find(follower, begins).get(table.table_oid)
    if isinstance(made, list) and not (stored and stored.place > formed):
        made = _as_copied(made, now)
    if isinstance(made, SourceForm):
        change = difference.between(made, now, numbered=made.oid == now.oid)
        return change if made.oid == now.oid else _in_its_place(follower, table, change, now)
    place = max(formed, stored.place) if stored else formed
    before = table_versions.version_at(log, registration.source_id, table, place)
    if before is None:  # the log has no version of the table: search each column of the copy in it
        return difference.between(SourceForm(now.oid, *now.called, [], [], []), now, numbered=False)
    numbered = before.numbered and before.relation_oid == table.table_oid
    change = difference.between(before, now, numbered=numbered)
    return change if before.table_oid == table.table_oid else _in_its_place(follower, table, change, now)


def _in_its_place(follower: Connection, table: NamedTable, change: FormDifference, now: SourceForm) -> FormDifference:
    """Return the change for a table that takes the place of another one: each of its columns is searched there."""
    there = AlterationBuilder(follower, (table.table_schema, table.table_name))
    retyped = tuple(each for each in change.retyped if there.has(each.name, change))
    known = {each.name for each in retyped}
    columns = difference.between(replace(now, columns=[], key_columns=[]), now, numbered=False).added
    return replace(change, added=tuple(each for each in columns if each.name not in known), retyped=retyped)


def _as_copied(copied: CopiedForm, now: SourceForm) -> SourceForm | None:
    """Return the form of a copy; None if the stored columns do not tell everything."""
    if any(len(each) != COLUMN_PARTS for each in copied):
        return None
    return replace(now, columns=last_forms.columns_of(copied), key_columns=[each[0] for each in copied if each[-1]])


_NO_CAST = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.CannotCoerce, psycopg.errors.DatatypeMismatch)
"""Errors of the follower if a value cannot be converted to another type."""
_NONE = FormDifference(("", ""), {}, {}, (), (), (), None, unclear=False)
