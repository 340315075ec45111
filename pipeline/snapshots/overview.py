"""How many captured tables the log has whole, and why it does not have the others."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

FEW = 5


@dataclass(frozen=True)
class Incomplete:
    """A captured table that the log does not have whole. `state`: as in `pipeline.snapshots`."""

    table: str
    state: str
    reason: str | None


@dataclass(frozen=True)
class Whole:
    """A captured table. `from_seqs`: by events table, after which seq the log has its changes without a gap, where it
    has the table whole, or had it in an earlier epoch; else None, and the `reason`.
    """

    table_oid: int
    from_seqs: dict[str, int] | None
    reason: str | None


def whole_tables(connection: Connection, source: uuid.UUID) -> dict[int, Whole]:
    """Every captured table, by oid."""
    found = queries.rows(connection, Whole, statement("snapshots", "whole_tables"), {"source": source})
    return {each.table_oid: each for each in found}


def counts(connection: Connection, source: uuid.UUID) -> dict[str, int]:
    """Captured tables by state."""
    return dict(connection.execute(statement("snapshots", "count_tables"), {"source": source}).fetchall())


def failed(connection: Connection, source: uuid.UUID) -> dict[int, str]:
    """Tables that the log does not have whole because reading them failed, by oid: schema and name."""
    return dict(connection.execute(statement("snapshots", "failed_tables"), {"source": source}).fetchall())


def incomplete(connection: Connection, source: uuid.UUID, most: int = FEW) -> list[Incomplete]:
    """Some of those that nobody reads now."""
    values = {"source": source, "most": most}
    return queries.rows(connection, Incomplete, statement("snapshots", "unread_tables"), values)
