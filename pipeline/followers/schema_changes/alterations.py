"""Builds the statements that alter a follower's table to its next definition, in the order in which they run.

Changes that the follower's table already has, because an administrator made them, are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from pipeline.errors import SchemaChangeError
from pipeline.followers.applying import followed_tables
from pipeline.followers.schema_changes import refused_statements
from pipeline.followers.schema_changes.difference import ColumnDefinition, DefinitionDifference
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import shortest

logger = logging.getLogger(__name__)
_ROOM = "followers.schema_changes"


@dataclass(frozen=True)
class TableAlteration:
    """One statement that alters a table. `what`: what happened at the source, with the table and the column."""

    what: str
    statement: sql.SQL | sql.Composed
    makes_key: bool = False

    def as_text(self, follower: Connection) -> str:
        """Return the statement as text that an administrator can run."""
        return self.statement.as_string(follower)


class AlterationBuilder:
    """Builds alterations of one table of the follower."""

    def __init__(
        self,
        follower: Connection,
        called: tuple[str, str],
        identifier: sql.Identifier | None = None,
        without: Collection[str] = (),
    ) -> None:
        """`called`: the table's schema and name.

        `identifier`: the table to alter, if it is another table; that one has the same columns except `without`.
        """
        self._follower, self._called = follower, called
        self._table = identifier or sql.Identifier(*called)
        self._called, self._shown = called, ".".join(called)
        self._names = {name: column for name, column in _columns(follower, called).items() if name not in without}

    def of_columns(self, change: DefinitionDifference, live: Collection[int]) -> list[TableAlteration]:
        """Return statements that drop, rename, add and retype columns.

        `live`: numbers of the columns that the source still has. A column that the source has but no longer publishes
        stays unchanged. Raises SchemaChangeError if the follower cannot have a column.
        """
        return [
            *self._drop_columns(change, live),
            *self._rename_columns(change),
            *self._add_columns(change),
            *self._retype_columns(change.retyped),
        ]

    def _drop_columns(self, change: DefinitionDifference, live: Collection[int]) -> Iterator[TableAlteration]:
        for name, number in change.dropped.items():
            if name in self._names and number not in live:
                del self._names[name]
                yield self._alter(f"dropped column {name} of", "drop column {}", sql.Identifier(name))

    def _rename_columns(self, change: DefinitionDifference) -> Iterator[TableAlteration]:
        pending = {old: new for old, new in change.renamed.items() if old in self._names}
        pending = {old: new for old, new in pending.items() if not self._is_renamed(old, new, pending)}
        for old, new in pending.items():
            if new in self._names and new not in pending:
                raise self._error(
                    f"column {old} was renamed to {new} at the source, and the follower's table has another column"
                    f" {new}",
                    f"alter table {shortest(*self._called)} rename column {shortest(new)} to …",
                )
        # Exchanged names use a temporary third name.
        over = {old: f"{new} of pipeline_follower" if new in pending else new for old, new in pending.items()}
        for old, new in over.items():
            yield self._rename(old, new)
        for old, new in over.items():
            if new != pending[old]:
                yield self._rename(new, pending[old])

    def _is_renamed(self, old: str, new: str, pending: Mapping[str, str]) -> bool:
        """Return True if an administrator has renamed the column already, so the old name no longer exists."""
        return old not in self._names and new in self._names and new not in pending

    def _rename(self, old: str, new: str) -> TableAlteration:
        self._names[new] = self._names.pop(old)
        what = f"renamed column {old} to {new} in"
        return self._alter(what, "rename column {} to {}", sql.Identifier(old), sql.Identifier(new))

    def _add_columns(self, change: DefinitionDifference) -> Iterator[TableAlteration]:
        missing = [column for column in change.added if column.name not in self._names]
        for column, called in zip(missing, self._types(missing), strict=True):
            self._names[column.name] = {"type_name": called}
            what = f"added column {column.name} ({called}) to"
            yield self._alter(what, "add column {} {}", sql.Identifier(column.name), sql.SQL(called))
        there = [column for column in change.added if column not in missing]
        yield from self._retype_columns(there)

    def _retype_columns(self, columns: Sequence[ColumnDefinition]) -> Iterator[TableAlteration]:
        for column, called in zip(columns, self._types(columns), strict=True):
            known = self._names.get(column.name)
            if known is not None and known["type_name"] != called:
                what = f"made column {column.name} of type {called} in"
                yield self._alter(what, "alter column {} type {}", sql.Identifier(column.name), sql.SQL(called))

    def has(self, name: str, change: DefinitionDifference) -> bool:
        """Return True if the table already had this column, possibly under another name."""
        before = {new: old for old, new in change.renamed.items()}
        return before.get(name, name) in self._names

    def retype_empty(self, columns: Sequence[ColumnDefinition]) -> list[TableAlteration]:
        """Return statements that change the types of columns in a table without rows."""
        return [self.retyping_attempts(column)[-1] for column in columns]

    def retyping_attempts(self, column: ColumnDefinition) -> list[TableAlteration]:
        """Return statements to try in turn: one casts the values, one converts their texts, and one discards them."""
        [called] = self._types([column])
        name, kind = sql.Identifier(column.name), sql.SQL(called)
        what = f"made column {column.name} of type {called} in"
        change = "alter column {0} drop default, alter column {0} type {1} using "
        return [
            self._alter(what, change + "{0}::{1}", name, kind),
            self._alter(what, change + "{0}::text::{1}", name, kind),
            self._alter(
                what,
                "alter column {0} drop default, alter column {0} drop not null, alter column {0} type {1} using null",
                name,
                kind,
            ),
        ]

    def _types(self, columns: Sequence[ColumnDefinition]) -> list[str]:
        """Return the follower's names of these columns' types."""
        values = {
            "names": [column.type_name for column in columns],
            "modifiers": [column.type_modifier for column in columns],
        }
        found = [name for (name,) in self._follower.execute(statement(_ROOM, "type_names"), values).fetchall()]
        for column, name in zip(columns, found, strict=True):
            if name is None:
                raise self._error(
                    f"column {column.name} is of type {column.type_name} at the source, which the follower lacks",
                    f"create type {column.type_name} …",
                )
        return found

    def of_key(
        self, change: DefinitionDifference, unique: Collection[Sequence[str]] | None, *, deferrable: bool
    ) -> Iterator[TableAlteration]:
        """Return statements that make a changed key unique, and that drop what made the old key unique.

        The old key's index or constraint is dropped only if the source has dropped its own. `unique`: columns of each
        unique index of the source; None if unknown. `deferrable`: rows of the source may exchange their keys within a
        transaction, so the follower must allow it, too.
        """
        if change.key is None:
            return
        with self._follower.cursor(row_factory=dict_row) as cursor:
            found = cursor.execute(statement(_ROOM, "unique_on"), _named(self._called)).fetchall()
        renamed = [{change.renamed.get(name, name) for name in each["columns"]} for each in found]
        kept = list(zip(found, renamed, strict=True))
        if unique is not None and sorted(change.old_key) not in [sorted(columns) for columns in unique]:
            for each, _ in [each for each in kept if each[1] == set(change.old_key)]:
                yield self._drop_unique(each)
            kept = [each for each in kept if each[1] != set(change.old_key)]
        if change.key and set(change.key) not in [columns for _, columns in kept]:
            kind = "unique" if any(each["is_primary"] for each, _ in kept) else "primary key"
            columns = sql.SQL(", ").join(map(sql.Identifier, change.key))
            how = f"add {kind} ({{}}){' deferrable' if deferrable else ''}"
            yield replace(self._alter("gave another key to", how, columns), makes_key=True)

    def _drop_unique(self, unique: Mapping[str, Any]) -> TableAlteration:
        name, what = sql.Identifier(unique["name"]), "gave another key to"
        if unique["is_constraint"]:
            return self._alter(what, "drop constraint {}", name)
        dropped = sql.SQL("drop index {}").format(sql.Identifier(self._called[0], unique["name"]))
        return TableAlteration(f"the source {what} {self._shown}", dropped)

    def _alter(self, what: str, how: str, *parts: sql.Composable) -> TableAlteration:
        made = sql.SQL("alter table {} ").format(self._table) + sql.SQL(how).format(*parts)
        return TableAlteration(f"the source {what} {self._shown}", made)

    def _error(self, why: str, remedy: str) -> SchemaChangeError:
        return SchemaChangeError(f"table {self._shown} of the follower stops: {why}", f"`{remedy}` there")


def _columns(follower: Connection, called: tuple[str, str]) -> dict[str, dict[str, Any]]:
    there = followed_tables.describe(follower, [called]).get(called)
    return {column["name"]: column for column in there["columns"]} if there else {}


def _named(called: tuple[str, str]) -> dict[str, str]:
    return {"schema": called[0], "name": called[1]}


def run(follower: Connection, name: str, called: tuple[str, str], alterations: Sequence[TableAlteration]) -> None:
    """Run these alterations in the open transaction. Raises SchemaChangeError if the follower refuses one.

    `name`: the follower's name. `called`: the altered table, for messages.
    """
    for each in alterations:
        why = f"table {'.'.join(called)} of the follower stops: {each.what}"
        text = refused_statements.execute(follower, each.statement, why)
        logger.info("%s: %s: %s", name, each.what, text, extra={"action": "follower.altered"})
