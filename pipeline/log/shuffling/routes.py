"""Apply routes, which choose the events table of each change. New routes are recorded, and apply from the watermark."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from pipeline.config.routes import Route
from pipeline.errors import ConfigError
from pipeline.log import table as log
from pipeline.log import table_setup
from pipeline.log.readers import ReaderRegistry
from pipeline.log.shuffling import sequences
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn

logger = logging.getLogger(__name__)
_ADD_EVENTS_TABLE = """\
insert into pipeline.events_tables (source_id, name, last_seq)
values (%(source)s, %(name)s, nullif(%(last_seq)s::bigint, 0))
on conflict do nothing
"""
"""Register an events table of a source."""
_HELD_ROUTES = "select events_table, routes from pipeline.routes where source_id = %(source)s order by id desc limit 1"
"""Read the routes that the changes of a source follow now."""


@dataclass(frozen=True)
class RecordedRoutes:
    """The routes that were recorded last."""

    events_table: str
    routes: list[dict[str, Any]]


def tables(default: EventsTable, routes: Sequence[Route]) -> list[EventsTable]:
    """Return every events table of these settings once, the default one first."""
    return list(dict.fromkeys([default, *(EventsTable.parse(route.events_table) for route in routes)]))


def prepare(connection: Connection, source: uuid.UUID | None, default: EventsTable, routes: Sequence[Route]) -> None:
    """Create the missing events tables. A shuffler that takes over writes to them.

    `source` is None before the first start. Raises ConfigError for a default table that cannot replace the one before.
    """
    held = require_default(connection, source, default) if source else None
    for table in tables(default, routes):
        table_setup.ensure(connection, table)
    if held is None:
        log.point_view(connection, default)


def begin(connection: Connection, source: uuid.UUID, default: EventsTable, routes: Sequence[Route]) -> None:
    """Apply these routes from the watermark on, and record them if they are new. Only the one shuffler may call this.

    Raises ConfigError as `prepare` does.
    """
    wanted = [route.model_dump(mode="json") for route in routes]
    with connection.transaction():
        # With this lock, every transaction that moved rows before has committed or rolled back.
        connection.execute(statement("log.staging", "hold_watermark"), {"source": source})
        held = require_default(connection, source, default)
        for table in tables(default, routes):
            table_setup.ensure(connection, table)
            sequences.repair(connection, table, log.last_seq(connection, table) + 1)
            _add_table(connection, source, table)
        log.point_view(connection, default)
        if held is not None and held.events_table == str(default) and held.routes == wanted:
            return
        _record(connection, source, default, wanted, tables(default, routes))


def require_default(connection: Connection, source: uuid.UUID, default: EventsTable) -> RecordedRoutes | None:
    """Return the recorded routes. Raises ConfigError if a reader has its place in another default table."""
    held = queries.one(connection, RecordedRoutes, _HELD_ROUTES, {"source": source})
    if held is not None and held.events_table != str(default):
        _require_unfollowed(connection, held.events_table, str(default))
    return held


def _require_unfollowed(connection: Connection, before: str, default: str) -> None:
    if readers := ReaderRegistry(connection, EventsTable.parse(before)).needing():
        names = ", ".join(f'{reader.kind} "{reader.name}"' for reader in readers)
        raise ConfigError(
            f"PIPELINE_EVENTS_TABLE was {before} and now is {default}, but {names} would lose its place, which "
            f"is a seq of {before}; set it back to {before} and use PIPELINE_ROUTES for other tables, or delete the "
            "consumers and release the lakes (`pipeline retention --release-lake DIR`)"
        )


def _add_table(connection: Connection, source: uuid.UUID, table: EventsTable) -> None:
    values = {"source": source, "name": str(table), "last_seq": log.last_seq(connection, table)}
    connection.execute(_ADD_EVENTS_TABLE, values)


def _record(
    connection: Connection,
    source: uuid.UUID,
    default: EventsTable,
    routes: list[dict[str, Any]],
    written: Sequence[EventsTable],
) -> None:
    first = {str(table): log.last_seq(connection, table) + 1 for table in written}
    values = {"source": source, "events_table": str(default), "routes": Jsonb(routes), "first_seqs": Jsonb(first)}
    values["last_seq"] = log.last_seq(connection, default)
    after = queries.value(connection, statement("log.shuffling", "record_routes"), values)
    logger.info(
        "new routes apply from here on",
        extra={
            "action": "shuffle.routed",
            "routes": len(routes),
            "after_lsn": None if after is None else lsn.show(after),
        },
    )
