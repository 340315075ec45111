"""The events tables that were ever written: the default one, and those that routes send changes to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from pipeline.db import Connection
from pipeline.db import sql as statement
from pipeline.events.log import EventsTable


@dataclass(frozen=True)
class KnownTable:
    """One of them. `events`: how many the shuffler has added. `present`: whether it still is there."""

    name: str
    last_seq: int | None
    events: int
    updated_at: datetime | None
    present: bool


def known(connection: Connection) -> list[KnownTable]:
    """All of them by name; none in a database of an older version."""
    row = connection.execute("select to_regclass('pipeline.events_tables') is not null").fetchone()
    if not (row and row[0]):
        return []
    with connection.cursor(row_factory=class_row(KnownTable)) as cursor:
        return cursor.execute(statement("events", "known_tables")).fetchall()


def with_known(connection: Connection, named: Iterable[str]) -> list[EventsTable]:
    """These first, then all others that were ever written and are there."""
    others = [table.name for table in known(connection) if table.present]
    return [EventsTable.parse(name) for name in dict.fromkeys([*named, *others])]
