"""Which ways changes took into the log, and why not the shortest one."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection

_WAYS = "select way, reason, changes from pipeline.ways where source_id = %(source)s order by way, changes desc, reason"
"""How many changes of a source went which way, and why."""


@dataclass(frozen=True)
class WayCount:
    """So many changes went this way since it was first counted. `reason` is empty for the shortest way."""

    way: str
    reason: str
    changes: int


def counts(connection: Connection, source: uuid.UUID) -> list[WayCount]:
    """Of a source; the newest second may be missing."""
    return queries.rows(connection, WayCount, _WAYS, {"source": source})
