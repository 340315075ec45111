"""Tables as the source has them now, where the log does not say what a change of schema has made of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.config.settings import Config
from pipeline.followers import connecting
from pipeline.postgres import queries
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class SourceTable:
    """`numbers`: of its columns. `keys`: the columns of each unique index.

    `deferrable_key`: its primary key holds only at a commit.
    """

    oid: int
    schema: str
    name: str
    numbers: list[int]
    keys: list[list[str]]
    deferrable_key: bool

    @property
    def called(self) -> tuple[str, str]:
        """Schema and name."""
        return self.schema, self.name


def read(config: Config, oids: Iterable[int]) -> dict[int, SourceTable]:
    """By oid; one that was dropped is not there. Raises Unavailable."""
    with connecting.connect_catalog(config) as source:
        query = statement("followers.schema_changes", "source_tables")
        return {each.oid: each for each in queries.rows(source, SourceTable, query, {"oids": list(oids)})}
