"""Reads current definitions of tables at the source: the log has a new version only with its first event."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class SourceDefinition:
    """The definition of a table at the source: its name, all its columns with their numbers, and its keys.

    `key_columns`: the columns that identify rows. `keys`: the columns of each unique index. `deferrable_key`: Postgres
    checks the primary key at the commit.
    """

    oid: int
    table_schema: str
    table_name: str
    columns: list[dict[str, Any]]
    key_columns: list[str]
    keys: list[list[str]]
    deferrable_key: bool = False

    @property
    def called(self) -> tuple[str, str]:
        """Schema and name."""
        return self.table_schema, self.table_name

    def as_document(self) -> dict[str, Any]:
        """Return the definition as a document that can be stored; `SourceDefinition(**document)` restores it."""
        return asdict(self)


def read(source: Connection, oids: Iterable[int]) -> dict[int, SourceDefinition]:
    """Return the definitions of these tables by oid, without tables that were dropped."""
    with source.transaction():
        source.execute("set local search_path = ''")  # Postgres then prints names of types with their schemas
        found = queries.rows(
            source, SourceDefinition, statement("followers.copying", "source_definitions"), {"oids": list(oids)}
        )
    return {each.oid: each for each in found}
