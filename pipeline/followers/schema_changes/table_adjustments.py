"""Alters a table that is copied to the source's current definition, together with the rows of the copy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from pipeline.errors import SchemaChangeError
from pipeline.followers.applying import table_versions
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import COLUMN_PARTS, CopiedColumns, HistoryPlace
from pipeline.followers.copying import copies, source_definitions
from pipeline.followers.copying.source_definitions import SourceDefinition
from pipeline.followers.registry import NamedTable, RegisteredFollower
from pipeline.followers.schema_changes import difference, last_definitions, partitions, reached_versions
from pipeline.followers.schema_changes.alterations import AlterationBuilder, TableAlteration, run
from pipeline.followers.schema_changes.difference import ColumnDefinition, DefinitionDifference
from pipeline.followers.schema_changes.partitions import SourcePartition, TablePartitions
from pipeline.postgres.connections import Connection


class TableAdjustment:
    """Alters one table from its present definition to that of its copy."""

    def __init__(
        self,
        follower: Connection,
        registration: RegisteredFollower,
        table: NamedTable,
        change: DefinitionDifference,
        definition: SourceDefinition | None,
        partitions: Sequence[SourcePartition] = (),
    ) -> None:
        """`definition`: of the copy; None if the source dropped the table. `partitions`: the source's partitions."""
        self._follower, self._registration, self._change = follower, registration, change
        self.definition = definition
        self._keys: Collection[list[str]] = definition.keys if definition else []
        self._called = (table.table_schema, table.table_name)
        self._partitions = partitions

    @property
    def called(self) -> tuple[str, str]:
        """The source's name of the table; if the source has dropped it, the follower's name."""
        return self.definition.called if self.definition else self._called

    def at(self, follower: Connection, table: NamedTable) -> TableAdjustment:
        """Return the same adjustment over another session, for the table under another name."""
        return TableAdjustment(follower, self._registration, table, self._change, self.definition, self._partitions)

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

    def alter(self, replace_rows: Callable[[], None]) -> None:
        """Alter the table in the open transaction to the definition of the copy; `replace_rows` gives it the rows."""
        altered = AlterationBuilder(self._follower, self._called)
        self._run(altered.of_columns(replace(self._change, retyped=()), ()))
        for column in self._change.retyped:
            self._retype(altered, column)
        if self._divided.lacks(self._partitions):
            self._divided.follow(self._partitions)
        deferrable = self.definition is not None and self.definition.deferrable_key
        key = list(altered.of_key(self._change, self._keys, deferrable=deferrable))
        made = [each for each in key if each.makes_key]
        self._run([each for each in key if not each.makes_key])
        replace_rows()
        self._run(made)

    def _retype(self, altered: AlterationBuilder, column: ColumnDefinition) -> None:
        """Convert the old values to the new type, or discard them, because those of the copy replace them at once."""
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
    place: HistoryPlace,
    published: Collection[str],
) -> TableAdjustment:
    """Return the adjustment of a table for a copy. Raises SchemaChangeError if the settings forbid the change.

    `place`: of the version that the table has. `published`: the columns that are copied.
    """
    now = source_definitions.read(source, [table.table_oid]).get(table.table_oid)
    if now is None:
        return TableAdjustment(follower, registration, table, _NONE, None)
    change = _change(log, follower, registration, table, place, now)
    # A copy does not contain columns that are not published, so the follower does not need them.
    left_out = {each.name for each in change.added} - set(published)
    change = replace(change, added=tuple(each for each in change.added if each.name not in left_out))
    definition = replace(now, columns=[each for each in now.columns if each["name"] not in left_out])
    made = TableAdjustment(follower, registration, table, change, definition, partitions.read(source, table.table_oid))
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
    place: HistoryPlace,
    now: SourceDefinition,
) -> DefinitionDifference:
    """Return the difference between the table's definition and the source's current one, which its copy gets.

    The table's definition is stored since it was created or copied, or else is the version of this place.
    """
    begins = FollowerPosition(registration.source_id, registration.name)
    made = copies.find_definition(follower, begins, table.table_oid)
    stored = reached_versions.find(follower, begins).get(table.table_oid)
    if isinstance(made, list) and not (stored and stored.place > place):
        made = _as_copied(made, now)
    if isinstance(made, SourceDefinition):
        change = difference.between(made, now, numbered=made.oid == now.oid)
        return change if made.oid == now.oid else _of_replaced(follower, table, change, now)
    place = max(place, stored.place) if stored else place
    before = table_versions.version_at(log, registration.source_id, table, place)
    if before is None:  # the log has no version of the table: each column of the copy may be new
        return difference.between(SourceDefinition(now.oid, *now.called, [], [], []), now, numbered=False)
    numbered = before.numbered and before.relation_oid == table.table_oid
    change = difference.between(before, now, numbered=numbered)
    return change if before.table_oid == table.table_oid else _of_replaced(follower, table, change, now)


def _of_replaced(
    follower: Connection, table: NamedTable, change: DefinitionDifference, now: SourceDefinition
) -> DefinitionDifference:
    """Return the change if the table replaces another one: columns that the other table has are not added."""
    there = AlterationBuilder(follower, (table.table_schema, table.table_name))
    retyped = tuple(each for each in change.retyped if there.has(each.name, change))
    known = {each.name for each in retyped}
    columns = difference.between(replace(now, columns=[], key_columns=[]), now, numbered=False).added
    return replace(change, added=tuple(each for each in columns if each.name not in known), retyped=retyped)


def _as_copied(copied: CopiedColumns, now: SourceDefinition) -> SourceDefinition | None:
    """Return the definition with these copied columns; None if they do not tell everything."""
    if any(len(each) != COLUMN_PARTS for each in copied):
        return None
    return replace(
        now, columns=last_definitions.columns_of(copied), key_columns=[each[0] for each in copied if each[-1]]
    )


_NO_CAST = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.CannotCoerce, psycopg.errors.DatatypeMismatch)
"""Errors of the follower if a value cannot be converted to another type."""
_NONE = DefinitionDifference(("", ""), {}, {}, (), (), (), None, unclear=False)
