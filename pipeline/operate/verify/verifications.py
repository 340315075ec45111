"""The results of content verifications, kept for status, metrics and SQL, without any value of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Literal

from psycopg.types.json import Jsonb

from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing.differences import DifferingRow
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn

COMMAND, SCHEDULE = "command", "schedule"
_OF_TABLE = ("table", "state", "reason", "rows", "differing", "unknown", "verified_through", "seconds")

State = Literal["equal", "differs", "refused"]


@dataclass
class TableVerification:
    """The result for a table. `reason`: why it is refused. `differing`: the number of rows that differ.

    `differences`: the first differing rows. `unknown`: the number of rows whose values the log knows only in part; the
    known values were compared.
    """

    table: str
    state: State
    reason: str | None = None
    rows: int = 0
    differing: int = 0
    unknown: int = 0
    verified_through: lsn.Shown | None = None
    seconds: float = 0.0
    differences: list[DifferingRow] = field(default_factory=list)


@dataclass(frozen=True)
class ContentReport:
    """The result of a content verification. `share`: the share of each table's rows that was compared; 1: all."""

    started_at: datetime
    share: float
    named: bool
    tables: Sequence[TableVerification]

    JSON: ClassVar = ("ok", "started_at", "share", "rows", "differing", "unknown", "verified_through", "tables")

    @property
    def compared(self) -> list[TableVerification]:
        """The tables that were not refused."""
        return [table for table in self.tables if table.state != "refused"]

    @property
    def rows(self) -> int:
        """The number of rows of the source that were compared."""
        return sum(table.rows for table in self.tables)

    @property
    def differing(self) -> int:
        """The number of rows that differ."""
        return sum(table.differing for table in self.tables)

    @property
    def unknown(self) -> int:
        """The number of rows whose values the log knows only in part."""
        return sum(table.unknown for table in self.tables)

    @property
    def verified_through(self) -> lsn.Shown | None:
        """The LSN before which every commit was compared; None if nothing was compared."""
        return min(
            (table.verified_through for table in self.compared if table.verified_through is not None), default=None
        )

    @property
    def ok(self) -> bool:
        """True if rows were compared and none differs. A refused table counts only if it was requested by name."""
        return bool(self.compared) and not self.differing and not (self.named and len(self.compared) < len(self.tables))


@dataclass(frozen=True)
class StoredVerification:
    """The last content verification. `differs`: tables with rows that differ.

    `share`: the share of each table's rows that was compared; 1: all.
    """

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


def add(connection: Connection, stored: ReplicationSource, found: ContentReport, asked_by: str) -> None:
    """Store the result of a verification; of older results, the newest fifty are kept."""
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


def last(connection: Connection, stored: ReplicationSource) -> StoredVerification | None:
    """Return the newest verification; None before the first."""
    return queries.one(
        connection, StoredVerification, statement("operate.verify", "last_verification"), {"source": stored.id}
    )
