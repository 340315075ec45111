"""Which routes hold, which held before and from where on, and what each events table has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from pipeline.config.settings import Config
from pipeline.log import tables
from pipeline.log.tables import KnownTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn


@dataclass(frozen=True)
class Held:
    """Routes for the transactions of an epoch after `after_lsn`, until the next ones. `events_table`: the default.

    `first_seqs`: of each events table the seq from which on they decided.
    """

    id: int
    epoch: int
    after_lsn: lsn.Shown
    events_table: str
    routes: list[dict[str, Any]]
    first_seqs: dict[str, int]
    since: datetime


@dataclass(frozen=True)
class Routing:
    """`history` begins with what holds now. `pending`: these settings are others, and hold from the next start on."""

    history: list[Held]
    tables: list[KnownTable]
    pending: bool

    JSON: ClassVar = ("in_force", "pending", "tables", "history")

    @property
    def in_force(self) -> Held | None:
        """What holds now; None before the first start."""
        return self.history[0] if self.history else None


def collect(config: Config, connection: Connection) -> Routing:
    """All there is."""
    history = queries.rows(connection, Held, statement("operate", "list_routes"), {"source": config.source_id})
    wanted = config.events_table, [route.model_dump(mode="json") for route in config.routes]
    pending = not history or (history[0].events_table, history[0].routes) != wanted
    return Routing(history, tables.known(connection), pending)
