"""Read the current routes, the earlier ones with the position where each began, and the events tables with counts."""

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
class RoutesVersion:
    """The routes for transactions of an epoch that commit after `after_lsn`, until the next version.

    `events_table`: the default.

    `first_seqs`: for each events table, the first seq to which the routes applied.
    """

    id: int
    epoch: int
    after_lsn: lsn.Shown
    events_table: str
    routes: list[dict[str, Any]]
    first_seqs: dict[str, int]
    since: datetime


@dataclass(frozen=True)
class RoutingReport:
    """The routes in force and before; `history` begins with the routes in force.

    `pending`: the settings differ from the routes in force, and apply from the next start on.
    """

    history: list[RoutesVersion]
    tables: list[KnownTable]
    pending: bool

    JSON: ClassVar = ("in_force", "pending", "tables", "history")

    @property
    def in_force(self) -> RoutesVersion | None:
        """The routes that apply now; None before the first start."""
        return self.history[0] if self.history else None


def collect(config: Config, connection: Connection) -> RoutingReport:
    """Read the routes in force and before, and all events tables."""
    history = queries.rows(connection, RoutesVersion, statement("operate", "list_routes"), {"source": config.source_id})
    wanted = config.events_table, [route.model_dump(mode="json") for route in config.routes]
    pending = not history or (history[0].events_table, history[0].routes) != wanted
    return RoutingReport(history, tables.known(connection), pending)
