"""Reads which relations, columns and rows of a table its publications let through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class PublishedRelation:
    """A relation that holds rows of a table. `name`: quoted if necessary. `condition`: SQL; None: all its rows.

    `shape` changes with its name and its columns.
    """

    oid: int
    name: str
    columns: list[str] | None
    condition: str | None
    shape: str


def read(source: Connection, oid: int, publications: Sequence[str]) -> list[PublishedRelation]:
    """Return the published relations of a table: the table itself, or its partitions, in the order of oids."""
    values = {"oid": oid, "publications": list(publications)}
    return queries.rows(source, PublishedRelation, statement("capture.source", "published_relations"), values)
