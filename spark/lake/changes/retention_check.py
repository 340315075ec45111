"""Checks that the log still holds the events that a lake lacks: retention may have dropped the start of the log."""

from __future__ import annotations

import uuid

from adbc_driver_postgresql import dbapi

from lake.errors import DroppedEventsError
from lake.ledger import LakeLedger
from pyspark_sequin_events import catalog


def begins_after(ledger: LakeLedger, lake: uuid.UUID, connection: dbapi.Connection, events_table: str) -> int:
    """Return the seq after which the next export begins. An empty lake begins with the oldest event that is kept.

    Raises DroppedEventsError if events that the lake does not hold are no longer in the log.
    """
    after = ledger.exported_upto(lake)
    if after == 0:
        return catalog.dropped_below(connection, events_table) - 1
    require_kept(connection, events_table, after)
    return after


def require_kept(connection: dbapi.Connection, events_table: str, after: int) -> None:
    """Raise DroppedEventsError unless every event after that seq is kept.

    Retention records a drop before it deletes the first row. If no error is raised after a read, the read has all
    events.
    """
    below = catalog.dropped_below(connection, events_table)
    if after < below - 1:
        raise DroppedEventsError(
            f"seq {after + 1} to {below - 1} of {events_table} were dropped by retention and never exported to this "
            f"lake; name another PIPELINE_EXPORT_DIR, which begins with seq {below}"
        )
