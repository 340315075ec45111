"""Makes the events tables jump if the log may have gone back: then they skip all seqs that readers may have seen.

The log may have gone back if something differs that a restore cannot copy: the cluster and its timeline, the oids of
the database and of a table, or the transaction that has written a row of that table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from psycopg import sql

from pipeline.log import tables
from pipeline.log.table import EventsTable
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)

SourceClock = Callable[[], int]
"""Returns the microseconds since 1970 by the source's clock; raises DatabaseUnavailableError."""
_CLOCK = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"
_HOLD_WRITERS = "select from pipeline.shuffle_progress order by source_id for update"
"""Keep all sessions from writing events, of any source, until this transaction ends."""


def clock(source: Connection) -> int:
    """Return the microseconds since 1970 by the clock of this connection's server."""
    return int(queries.value(source, _CLOCK))


def clock_at(dsn: str) -> int:
    """Return the source's clock over a new connection to the source. Raises DatabaseUnavailableError."""
    with connections.connect(dsn, "source", name="pipeline clock") as source:
        return clock(source)


def ticking(source: Connection) -> SourceClock:
    """Return a clock that continues from the time of the source, without reading it again."""
    offset = clock(source) - time.monotonic_ns() // 1000
    return lambda: offset + time.monotonic_ns() // 1000


def require_continued(connection: Connection, configured: Sequence[EventsTable], source_clock: SourceClock) -> None:
    """Let all events tables jump if the log may have gone back since a session last wrote it.

    Each session calls this before it writes its first event, outside of a transaction. `configured`: the events
    tables of the settings.
    """
    with connection.transaction():
        differences = queries.value(connection, statement("log", "compare_identity"))
        if differences is None:
            connection.execute(statement("log", "store_identity"))
        elif differences:
            _jump(connection, configured, source_clock, "; ".join(differences))


def jump(connection: Connection, configured: Sequence[EventsTable], source_clock: SourceClock, reason: str) -> None:
    """Let all events tables jump, outside of a transaction. `configured`: those of the settings."""
    with connection.transaction():
        queries.value(connection, statement("log", "compare_identity"))
        _jump(connection, configured, source_clock, reason)


def _jump(connection: Connection, configured: Sequence[EventsTable], source_clock: SourceClock, reason: str) -> None:
    now = source_clock()
    connection.execute(_HOLD_WRITERS)
    for table in tables.with_known(connection, map(str, configured)):
        if queries.value(connection, "select to_regclass(%s) is null", (table.identifier.as_string(connection),)):
            continue  # it will be created behind this jump
        values = {"name": str(table), "sequence": table.sequence.as_string(connection), "clock": now, "reason": reason}
        query = sql.SQL(statement("log", "jump")).format(events=table.identifier)
        row = connection.execute(query, values).fetchone()
        assert row is not None  # noqa: S101  an aggregate
        fields = {"action": "log.jumped", "events_table": str(table), "before": row[0], "after": row[1]}
        logger.warning("the next seq of %s is %s instead of %s: %s", table, row[1], row[0] + 1, reason, extra=fields)
    connection.execute(statement("log", "store_identity"))
