"""The events tables that were ever written to: the default one, and those that routes send changes to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pipeline.log.table import EventsTable
from pipeline.postgres import migrations, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class KnownTable:
    """One events table. `events`: how many the shuffler has added. `present`: whether it still exists."""

    name: str
    last_seq: int | None
    events: int
    updated_at: datetime | None
    present: bool


def known(connection: Connection) -> list[KnownTable]:
    """Return all known events tables by name; none in a database that was never migrated."""
    if migrations.current_revision(connection) is None:
        return []
    return queries.rows(connection, KnownTable, statement("log", "known_tables"))


def partitions(connection: Connection, qualified: Sequence[str]) -> list[str]:
    """Return the partitions of these tables by qualified name; a table that does not exist has none."""
    rows = connection.execute(statement("log", "name_partitions"), {"tables": list(qualified)}).fetchall()
    return [name for (name,) in rows]


def with_known(connection: Connection, named: Iterable[str]) -> list[EventsTable]:
    """Return the named tables first, then all others that were ever written to and still exist."""
    others = [table.name for table in known(connection) if table.present]
    return [EventsTable.parse(name) for name in dict.fromkeys([*named, *others])]
