"""Lists the tables of the source that can be published, and those that cannot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psycopg import sql

from pipeline.capture.source.publication_ledger import PublicationState
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


class QualifiedTableName(NamedTuple):
    """A schema and a name in it, unquoted."""

    schema: str
    name: str

    @property
    def identifier(self) -> sql.Identifier:
        """The name, quoted for SQL."""
        return sql.Identifier(self.schema, self.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class PublishableTable:
    """A table or partition that could be published.

    `partitioned`: it has no rows itself. `keyed`: all its updates and deletes can be published safely, also those of
    its partitions. `lacks_key`: this table is the reason why not, rather than the table that it is a partition of.
    `refuses_updates`: Postgres refuses the table's own updates and deletes if they are published; never true for a
    partitioned table, whose rows are in its partitions. `key_columns`: numbers of the columns that identify its rows,
    in the root; empty for a partitioned table. `owned`: this user may publish it. `line`: its oid and those of the
    partitioned tables above it, up to the root; `names` and `schemas` belong to these.
    """

    oid: int
    schema: str
    name: str
    partitioned: bool
    keyed: bool
    full_identity: bool
    lacks_key: bool
    refuses_updates: bool
    key_columns: list[int]
    owned: bool
    line: list[int]
    names: list[str]
    schemas: list[int]

    @property
    def partition(self) -> bool:
        """True if the table is a partition."""
        return len(self.line) > 1

    @property
    def needs_baseline(self) -> bool:
        """True if the stream lacks what an event needs: a partition's root, or the primary key of a full identity."""
        return not self.partitioned and (self.partition or self.full_identity)

    @property
    def table_name(self) -> QualifiedTableName:
        """The table's name in publications."""
        return QualifiedTableName(self.schema, self.name)

    def __str__(self) -> str:
        return str(self.table_name)


def read(source: Connection, publication: str, *, by_publisher: bool = False) -> list[PublishableTable]:
    """Return all tables, for a publication that exists or that the server will create.

    `by_publisher`: they are `owned` if the publication's owner owns them, whichever role asks.
    """
    values = {"publication": publication, "by_publisher": by_publisher}
    return queries.rows(source, PublishableTable, statement("capture.source", "publishable_tables"), values)


def find_unpublishable(source: Connection) -> list[tuple[str, str]]:
    """Return relations that can never be replicated: name and kind."""
    return source.execute(statement("capture.source", "unpublishable_tables")).fetchall()


def find_uncovered(tables: Sequence[PublishableTable], published: Iterable[PublicationState]) -> list[PublishableTable]:
    """Return the tables in no publication.

    For a partitioned table, return its root; or, if some of its partitions are covered, the other partitions.
    """
    root_of = {table.oid: table.line[-1] for table in find_covered(tables, published)}
    listed, roots = {table.oid for table in tables}, set(root_of.values())
    return [table for table in tables if table.oid not in root_of and _is_reported(table, listed, roots)]


def find_covered(tables: Sequence[PublishableTable], published: Iterable[PublicationState]) -> list[PublishableTable]:
    """Return the tables in one of these publications: by name, with a table above them, or with their schema."""
    found = list(published)
    members = {int(oid) for publication in found for oid in (*publication.tables, *publication.schemas)}
    everything = any(publication.all_tables for publication in found)
    return [table for table in tables if everything or not members.isdisjoint([*table.line, *table.schemas])]


def _is_reported(table: PublishableTable, listed: set[int], roots: set[int]) -> bool:
    """True if an uncovered table must be reported. `roots`: those with a covered partition."""
    root = table.line[-1]
    if root == table.oid or root not in listed:
        return root not in roots
    return root in roots and not table.partitioned
