"""Tables of the source as they are to be published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psycopg import sql

from pipeline.capture.source.publication_ledger import Published
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


class TableName(NamedTuple):
    """A schema and a name in it, neither quoted."""

    schema: str
    name: str

    @property
    def identifier(self) -> sql.Identifier:
        """The name, quoted for SQL."""
        return sql.Identifier(self.schema, self.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class Table:
    """A table that could be published; a partition too.

    `partitioned`: has no rows of its own. `keyed`: all its updates and deletes can be published safely, those of its
    partitions included. `lacks_key`: it is the reason why not, rather than the table that it is a partition of.
    `owned`: this user may publish it. `line`: its oid and those of the partitioned tables that it is part of, up to the
    root; `names` and `schemas` of these.
    """

    oid: int
    schema: str
    name: str
    partitioned: bool
    keyed: bool
    full_identity: bool
    lacks_key: bool
    owned: bool
    line: list[int]
    names: list[str]
    schemas: list[int]

    @property
    def partition(self) -> bool:
        """Whether it is part of another one."""
        return len(self.line) > 1

    @property
    def tells_less(self) -> bool:
        """Whether the stream leaves out what an event needs: a partition's root, or the key beside a full identity."""
        return not self.partitioned and (self.partition or self.full_identity)

    @property
    def table_name(self) -> TableName:
        """How publications name it."""
        return TableName(self.schema, self.name)

    def __str__(self) -> str:
        return str(self.table_name)


def read(source: Connection, publication: str) -> list[Table]:
    """All there are, for a publication that is there or will be ours."""
    return queries.rows(source, Table, statement("capture.source", "publishable_tables"), {"publication": publication})


def unpublishable(source: Connection) -> list[tuple[str, str]]:
    """What can never be replicated: name and kind."""
    return source.execute(statement("capture.source", "unpublishable_tables")).fetchall()


def uncovered(tables: Sequence[Table], published: Iterable[Published]) -> list[Table]:
    """Those in no publication; of a partitioned one its root, or, where some partitions are in one, the others."""
    found = list(published)
    members = {int(oid) for publication in found for oid in (*publication.tables, *publication.schemas)}
    everything = any(publication.all_tables for publication in found)
    covered = {t.oid: t.line[-1] for t in tables if everything or not members.isdisjoint([*t.line, *t.schemas])}
    listed, roots = {table.oid for table in tables}, set(covered.values())
    return [table for table in tables if table.oid not in covered and _speaks(table, listed, roots)]


def _speaks(table: Table, listed: set[int], roots: set[int]) -> bool:
    """Whether an uncovered table is to be named. `roots`: those of which something is covered."""
    root = table.line[-1]
    if root == table.oid or root not in listed:
        return root not in roots
    return root in roots and not table.partitioned
