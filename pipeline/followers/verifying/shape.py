"""Determines which columns of a table are compared, and how each side finds the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from pipeline.errors import NotComparableError
from pipeline.postgres import key_comparison, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.key_comparison import KeyComparison
from pipeline.postgres.queries import statement

_OF_POSTGRES = "pg_catalog."


@dataclass(frozen=True)
class ComparedRelation:
    """A relation that holds rows of a table at the source.

    `name` is quoted if necessary. `condition`: SQL; None means all rows.
    """

    name: str
    condition: str | None


@dataclass(frozen=True)
class ComparedTable:
    """A table as the source publishes it. `key`: the columns that identify its rows; empty if it has no key.

    `follower_schema`, `follower_name`: the name of the follower's table.
    """

    schema: str
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    relations: tuple[ComparedRelation, ...]
    follower_schema: str
    follower_name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class ComparedColumn:
    """A column at one side. `sorts_alike`: every server sorts values of the column's type in the same order."""

    relation: int
    name: str
    generated: bool
    partitioned: bool
    sorts_alike: bool


@dataclass(frozen=True)
class SideDefinition:
    """The definition of the table at one side, which must stay the same while rows are compared.

    `names`: the relations, as SQL. `hashes`: of their definitions. `key`: None if the table has no key.
    `shows_locations`: the user may see the location of each row, and the transaction that wrote it.
    """

    names: tuple[str, ...]
    hashes: tuple[str | None, ...]
    relation: int
    key: KeyComparison | None
    shows_locations: bool

    def require_unaltered(self, connection: Connection) -> None:
        """Raise NotComparableError if the table was altered. The transaction must have locked the relations."""
        key = [each.name for each in self.key.columns] if self.key else []
        if _definition(connection, self.names, self.relation, key) != self:
            raise NotComparableError("the table was altered while it was compared; run the command again")


@dataclass(frozen=True)
class ComparisonShape:
    """The compared columns in one order, and the definition of the table at each side.

    `ranged`: both sides sort keys in the same order, so ranges of keys hold the same rows at both. `partitioned`: the
    follower's table is partitioned.
    """

    columns: tuple[str, ...]
    source: SideDefinition
    follower: SideDefinition
    ranged: bool
    partitioned: bool


def read(source: Connection, follower: Connection, table: ComparedTable) -> ComparisonShape:
    """Read the current shape. Both connections must have an open transaction.

    Raises NotComparableError if the follower lacks the table or a column, or if comparing keys may run an owner's code.
    """
    there = _columns(follower, table.follower_schema, table.follower_name)
    if not there and not _exists(follower, table.follower_schema, table.follower_name):
        raise NotComparableError("the follower has no such table")
    here = _columns(source, table.schema, table.name)
    if lacking := [name for name in table.columns if name not in there]:
        raise NotComparableError(
            f"the follower has no column {', '.join(lacking)}, perhaps because a schema change has not arrived yet"
        )
    if any(name not in here for name in table.columns):
        raise NotComparableError("it was altered just now; run it again")
    compared = tuple(name for name in table.columns if not there[name].generated or name in table.key)
    names = [each.name for each in table.relations] or [_quoted(source, table.schema, table.name)]
    at_source = _definition(source, names, here[table.key[0]].relation if table.key else 0, table.key)
    try:
        there_named = [_quoted(follower, table.follower_schema, table.follower_name)]
        at_follower = _definition(follower, there_named, there[table.key[0]].relation if table.key else 0, table.key)
    except NotComparableError as error:
        raise NotComparableError(f"at the follower, {error}") from error
    sorted_alike = all(here[name].sorts_alike and there[name].sorts_alike for name in table.key)
    partitioned = any(column.partitioned for column in there.values())
    ranged = sorted_alike and _are_of_one_type(at_source.key, at_follower.key)
    return ComparisonShape(compared, at_source, at_follower, ranged, partitioned)


def _exists(connection: Connection, schema: str, name: str) -> bool:
    """Return True if the table exists: it may have no columns."""
    found: bool = queries.value(
        connection, statement("followers.verifying", "table_exists"), {"schema": schema, "name": name}
    )
    return found


def _columns(connection: Connection, schema: str, name: str) -> dict[str, ComparedColumn]:
    query = statement("followers.verifying", "columns")
    found = queries.rows(connection, ComparedColumn, query, {"schema": schema, "name": name})
    return {column.name: column for column in found}


def _definition(connection: Connection, names: Sequence[str], relation: int, key: Sequence[str]) -> SideDefinition:
    query = statement("followers.verifying", "definitions")
    [(hashes, locations)] = connection.execute(query, {"names": list(names)}).fetchall()
    compared = key_comparison.read_comparison(connection, relation, key) if key else None
    return SideDefinition(tuple(names), tuple(hashes), relation, compared, locations)


def _quoted(connection: Connection, *name: str) -> str:
    return sql.Identifier(*name).as_string(connection)


def _are_of_one_type(source: KeyComparison | None, follower: KeyComparison | None) -> bool:
    """Return True if both sides compare keys as the same types of Postgres itself.

    A type that users created, such as an enum, may have another order in each database.
    """
    if source is None or follower is None:
        return False
    types = [column.type for column in source.columns]
    return types == [column.type for column in follower.columns] and all(
        each.startswith(_OF_POSTGRES) for each in types
    )
