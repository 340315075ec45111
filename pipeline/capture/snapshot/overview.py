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


def counts(connection: Connection, source: uuid.UUID) -> dict[str, int]:
    """Captured tables by state."""
    return dict(connection.execute(statement("capture.snapshot", "count_tables"), {"source": source}).fetchall())


def incomplete(connection: Connection, source: uuid.UUID, most: int = FEW) -> list[Incomplete]:
    """Some of those that nobody reads now."""
    values = {"source": source, "most": most}
    return queries.rows(connection, Incomplete, statement("capture.snapshot", "unread_tables"), values)
