"""What tables at the source are like now: what their events do not say before the next change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class SourceForm:
    """A table by its oid, with all its columns and their numbers. `keys`: the columns of each unique index.

    `deferrable_key`: its primary key holds only at a commit.
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
        """To be stored; `SourceForm(**found)` gives it back."""
        return asdict(self)


def read(source: Connection, oids: Iterable[int]) -> dict[int, SourceForm]:
    """By oid; one that was dropped is not there."""
    with source.transaction():
        source.execute("set local search_path = ''")  # names of types come out qualified
        found = queries.rows(source, SourceForm, statement("followers.copying", "source_forms"), {"oids": list(oids)})
    return {each.oid: each for each in found}
