"""The sources that the pipeline database knows, each with its epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn


@dataclass(frozen=True)
class KnownSource:
    """A source as it was at the last connection. `since`: when its epoch began; `position`: how far it is staged."""

    id: str
    epoch: int
    database: str
    cluster: str
    timeline: int | None
    slot: str
    publications: list[str]
    position: lsn.Shown | None
    since: datetime | None


def collect(connection: Connection) -> list[KnownSource]:
    """All known sources."""
    return queries.rows(connection, KnownSource, statement("operate", "known_sources"))
