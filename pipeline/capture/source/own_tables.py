"""The server's own tables, if source and pipeline database are the same database.

None of them is captured, whatever a publication says: each event would cause another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.log import tables
from pipeline.postgres.connections import Connection

SCHEMA = "pipeline"
_STAGING_AND_ITEMS = ("public.wal_events", "public.consumer_records")
_DATABASE_IDENTITY = "select (select system_identifier from pg_control_system()), current_database()"
"""Identifies one database of one cluster."""


@dataclass(frozen=True)
class OwnTables:
    """The server's tables at the source. `names`: those outside of its schema; empty if the databases are two."""

    names: frozenset[str] = frozenset()

    def includes(self, schema: str, names: Iterable[str]) -> bool:
        """True if a table of this schema is the server's. `names`: its name, and those of the partitioned
        tables above it.
        """
        return bool(self.names) and (schema == SCHEMA or not self.names.isdisjoint(names))


NONE = OwnTables()


def read(source: Connection, pipeline: Connection | None, events_tables: Iterable[str]) -> OwnTables:
    """Return the server's own tables. `events_tables`: those that the settings name. `pipeline`: a connection to the
    pipeline database; None if that does not answer.
    """
    if pipeline is None or not shares_database(source, pipeline):
        return NONE
    events = [*events_tables, *(table.name for table in tables.known(pipeline))]
    return OwnTables(frozenset([*_STAGING_AND_ITEMS, *events, *tables.partitions(pipeline, events)]))


def shares_database(source: Connection, pipeline: Connection) -> bool:
    """True if both connections are to the same database of the same cluster."""
    query = _DATABASE_IDENTITY
    return source.execute(query).fetchone() == pipeline.execute(query).fetchone()
