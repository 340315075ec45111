"""Measure how long events took from their commit at the source until they were written to the log."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class CommitLatency:
    """Seconds from `committed_at` to `inserted_at` of the newest 1,000 events, by the clocks of both servers.

    Never below 0. `inserted_at` is when the batch began that wrote the event: readers see the event a little later.
    """

    median_seconds: float
    p99_seconds: float


def measure_newest(connection: Connection, table: EventsTable) -> CommitLatency | None:
    """Return the latency of the newest events; None if there is no event."""
    query = sql.SQL(statement("log", "commit_latency")).format(events=table.identifier)
    found = queries.rows(connection, CommitLatency, query)
    return found[0] if found else None
