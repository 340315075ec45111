"""What of a backlog waits to become partitions of the events table, and what holds that up."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class BacklogAdoption:
    """`from_seq`: a worker writes tables from this seq on, None when none does. `held_by`: who holds them up."""

    from_seq: int | None
    tables: int
    events: int
    held_by: str | None


def read(connection: Connection, source: uuid.UUID) -> BacklogAdoption | None:
    """Of a source; None when nothing is adopted and nothing waits."""
    return queries.one(connection, BacklogAdoption, statement("operate", "adoption"), {"source": source})
