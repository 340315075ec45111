"""The tables of a backlog that wait to become partitions of the events table, and the session that blocks them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class BacklogAdoption:
    """The tables that wait. `from_seq`: the first seq for which a worker now writes a table; None if no worker does.

    `held_by`: the session that blocks them.
    """

    from_seq: int | None
    tables: int
    events: int
    held_by: str | None


def read(connection: Connection, source: uuid.UUID) -> BacklogAdoption | None:
    """Read the waiting tables of a source; None if no table waits and no worker writes one."""
    return queries.one(connection, BacklogAdoption, statement("operate", "adoption"), {"source": source})
