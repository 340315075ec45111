"""Count changes by the way that they took into the log, and why not the shortest way."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection

_WAYS = "select way, reason, changes from pipeline.ways where source_id = %(source)s order by way, changes desc, reason"
"""The number of changes of a source by way and reason."""


@dataclass(frozen=True)
class WayCount:
    """The number of changes that went this way since counting began. `reason` is empty for the shortest way."""

    way: str
    reason: str
    changes: int


def counts(connection: Connection, source: uuid.UUID) -> list[WayCount]:
    """Return the counts of a source; the newest second may be missing."""
    return queries.rows(connection, WayCount, _WAYS, {"source": source})
