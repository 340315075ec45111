"""Finds statements that let a follower accept a row that a check, a not null or a unique index of it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from pipeline.errors import StatementRefusedError
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import identifier

_ROOM = "followers.copying"
_REFUSED = (
    psycopg.errors.CheckViolation,
    psycopg.errors.NotNullViolation,
    psycopg.errors.UniqueViolation,
    psycopg.errors.ExclusionViolation,
)


@dataclass(frozen=True)
class RefusedRow:
    """A row that a table or a domain of the follower refuses. `column`: the column of a violated not null."""

    schema: str
    table: str | None
    domain: str | None
    constraint: str | None
    column: str | None

    def remedy(self, follower: Connection, source: Connection) -> str | None:
        """Return what to run at the follower; None if the row would conflict with another one at the source as well.

        Neither session may have an open transaction.
        """
        if self.domain is not None:
            how = "drop not null" if self.constraint is None else f"drop constraint {identifier(self.constraint)}"
            texts = [f"alter domain {identifier(self.schema, self.domain)} {how}"]
        else:
            found = follower.execute(statement(_ROOM, "refusing_constraints"), vars(self)).fetchall()
            texts = [text for (text,) in found] or self._of_indexes(follower, source)
        return f"let it take that row: run there `{'; '.join(texts)}`" if texts else None

    def _of_indexes(self, follower: Connection, source: Connection) -> list[str]:
        """Return statements that drop the unique indexes that the source lacks."""
        theirs = dict[tuple[str, str], list[Any]]()
        texts = list[str]()
        for each in _unique(follower, self.schema, self.table, self.constraint):
            name = each.schema, each.table
            if name not in theirs:
                theirs[name] = [index.definition for index in _unique(source, *name)]
            texts += [each.drops] if each.definition not in theirs[name] else []
        return texts


@dataclass(frozen=True)
class _UniqueIndex:
    """A unique index. `definition`: its keys and condition. `drops`: the SQL that drops it."""

    schema: str
    table: str
    definition: list[str | None]
    drops: str


def from_error(error: BaseException) -> RefusedRow | None:
    """Return the row that the follower refused, according to the error or its cause; None for another error."""
    if isinstance(error, StatementRefusedError) and error.database != "follower":
        return None
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    if not isinstance(cause, _REFUSED):
        return None
    diag = cause.diag
    return RefusedRow(
        diag.schema_name or "", diag.table_name, diag.datatype_name, diag.constraint_name, diag.column_name
    )


def _unique(connection: Connection, schema: str, table: str | None, name: str | None = None) -> list[_UniqueIndex]:
    values = {"schema": schema, "table": table, "name": name}
    return queries.rows(connection, _UniqueIndex, statement(_ROOM, "unique_indexes"), values)
