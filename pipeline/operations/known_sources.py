"""The sources that the pipeline database knows, and in which epoch each is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pipeline import db
from pipeline.db import Connection, sql
from pipeline.wal import lsn


@dataclass(frozen=True)
class KnownSource:
    """A source as it was last connected to. `since`: when its epoch began; `position`: how far it is staged."""

    id: str
    epoch: int
    database: str
    cluster: str
    timeline: int | None
    slot: str
    publications: list[str]
    position: int | None
    since: datetime | None

    def to_json(self) -> dict[str, Any]:
        """For `--json`: LSNs as Postgres prints them."""
        return {**asdict(self), "position": None if self.position is None else lsn.show(self.position)}


def collect(connection: Connection) -> list[KnownSource]:
    """All of them."""
    return db.rows(connection, KnownSource, sql("operations", "known_sources"))
