"""What content verifications have found: kept for status, metrics and SQL, without any value of a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from pipeline.capture.source.sources import Source
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn

if TYPE_CHECKING:
    from pipeline.operate.verify.content import Content

COMMAND, SCHEDULE = "command", "schedule"
_OF_TABLE = ("table", "state", "reason", "rows", "differing", "unknown", "verified_through", "seconds")


@dataclass(frozen=True)
class Verification:
    """The last one. `differs`: tables with rows that differ. `share`: of the rows of each table; 1: all."""

    asked_by: str
    started_at: datetime
    finished_at: datetime
    share: float
    tables_compared: int
    tables_refused: int
    rows: int
    differing: int
    unknown: int
    verified_through: lsn.Shown | None
    differs: list[str] = field(default_factory=list)


def add(connection: Connection, stored: Source, found: Content, asked_by: str) -> None:
    """Keep it; of older ones fifty are kept."""
    tables = [{name: getattr(table, name) for name in _OF_TABLE} for table in found.tables]
    values = {
        "source": stored.id,
        "asked_by": asked_by,
        "started_at": found.started_at,
        "share": found.share,
        "compared": len(found.compared),
        "refused": len(found.tables) - len(found.compared),
        "rows": found.rows,
        "differing": found.differing,
        "unknown": found.unknown,
        "verified_through": found.verified_through,
        "tables": Jsonb(tables),
    }
    connection.execute(statement("operate.verify", "add_verification"), values)


def last(connection: Connection, stored: Source) -> Verification | None:
    """The newest one; None before the first."""
    return queries.one(
        connection, Verification, statement("operate.verify", "last_verification"), {"source": stored.id}
    )
