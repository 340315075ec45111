"""What of a table is compared, and how its rows are found: columns by their names, at both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.errors import NotComparable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class Relation:
    """One that holds rows of a table at the source. `name`: quoted where need be. `condition`: SQL; None: all rows."""

    name: str
    condition: str | None


@dataclass(frozen=True)
class Table:
    """A table as the source publishes it. `key`: the columns by which its rows are known; empty: by none.

    `follower_schema`, `follower_name`: what the follower calls it.
    """

    schema: str
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    relations: tuple[Relation, ...]
    follower_schema: str
    follower_name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class Column:
    """A column at one side. `type_name`: as SQL writes it there, without a length. `equals`: the operator of its index.

    `sorts_alike`: its values are in the same order on every server.
    """

    name: str
    type_name: str
    type_oid: int
    generated: bool
    sorts_alike: bool
    equals: str
    partitioned: bool


@dataclass(frozen=True)
class Shape:
    """The columns that both sides have, in one order; `source_key` and `follower_key` are the key's.

    `ranged`: both sides sort keys in the same order, so that their ranges hold the same rows.
    """

    columns: tuple[str, ...]
    source_key: tuple[Column, ...]
    follower_key: tuple[Column, ...]
    ranged: bool
    partitioned: bool


def read(source: Connection, follower: Connection, table: Table) -> Shape:
    """As both sides have it now. Raises NotComparable where the follower lacks what is to be compared."""
    there = _columns(follower, table.follower_schema, table.follower_name)
    if not there and not _is_there(follower, table.follower_schema, table.follower_name):
        raise NotComparable("the follower has no such table")
    here = _columns(source, table.schema, table.name)
    if lacking := [name for name in table.columns if name not in there]:
        raise NotComparable(f"the follower has no column {', '.join(lacking)}; is a schema change under way?")
    if any(name not in here for name in table.columns):
        raise NotComparable("it was altered just now; run it again")
    compared = tuple(name for name in table.columns if not there[name].generated or name in table.key)
    source_key = tuple(here[name] for name in table.key)
    follower_key = tuple(there[name] for name in table.key)
    return Shape(
        compared,
        source_key,
        follower_key,
        _sort_alike(source_key, follower_key),
        any(column.partitioned for column in there.values()),
    )


def _is_there(connection: Connection, schema: str, name: str) -> bool:
    """A table may have no columns."""
    found: bool = queries.value(
        connection, statement("followers.verifying", "is_there"), {"schema": schema, "name": name}
    )
    return found


def _columns(connection: Connection, schema: str, name: str) -> dict[str, Column]:
    query = statement("followers.verifying", "columns")
    found = queries.rows(connection, Column, query, {"schema": schema, "name": name})
    return {column.name: column for column in found}


def _sort_alike(source: Sequence[Column], follower: Sequence[Column]) -> bool:
    return all(
        here.sorts_alike and there.sorts_alike and here.type_oid == there.type_oid
        for here, there in zip(source, follower, strict=True)
    )
