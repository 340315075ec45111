"""Reads tables as the source has them now, because the log does not tell all results of a schema change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.config.settings import Config
from pipeline.followers import connecting
from pipeline.followers.applying.table_versions import TableVersion
from pipeline.postgres import queries
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class CurrentSourceTable:
    """A table of the source. `numbers`, `names`: of its columns. `keys`: the columns of each unique index.

    `deferrable_key`: Postgres checks the primary key at the commit.
    """

    oid: int
    schema: str
    name: str
    numbers: list[int]
    names: list[str]
    keys: list[list[str]]
    deferrable_key: bool

    @property
    def called(self) -> tuple[str, str]:
        """Schema and name."""
        return self.schema, self.name

    def keys_of(self, version: TableVersion) -> list[list[str]]:
        """Return the current keys, with the names that a version has for their columns if the version has numbers."""
        if not version.numbered:
            return self.keys
        then = {column["attnum"]: column["name"] for column in version.columns}
        # A column that is newer than the version gets a name that no column of the version has.
        known = {
            name: then.get(number, f"{number} of later") for number, name in zip(self.numbers, self.names, strict=True)
        }
        return [[known[name] for name in key] for key in self.keys]


def read(config: Config, oids: Iterable[int]) -> dict[int, CurrentSourceTable]:
    """Return the current tables by oid, without dropped ones. Raises DatabaseUnavailableError."""
    with connecting.connect_catalog(config) as source:
        query = statement("followers.schema_changes", "source_tables")
        return {each.oid: each for each in queries.rows(source, CurrentSourceTable, query, {"oids": list(oids)})}


def takes_null(config: Config, oid: int, column: str, number: int | None) -> bool:
    """Return True if a column of a table accepts nulls now; False if it does not exist. Raises
    DatabaseUnavailableError.
    """
    values = {"oid": oid, "column": column, "number": number}
    with connecting.connect_catalog(config) as source:
        return queries.value(source, statement("followers.schema_changes", "takes_null"), values) is True
