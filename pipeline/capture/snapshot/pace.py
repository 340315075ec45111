"""How fast tables are read: the stream goes first, and a limit may be set."""

from __future__ import annotations

from uuid import UUID

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

YIELD_SECONDS = 1.0
"""How long a worker waits before its next range while the stream lags: a snapshot never stands still for good."""
LAG_BYTES = 64_000_000
"""The stream lags when the source is so many bytes of WAL ahead of it."""
LAG_ROWS = 20_000
"""And when so many rows of it are staged and are no events yet."""


class Rate:
    """A limit of rows a second for all workers together; 0: none."""

    def __init__(self, rows_per_second: int, workers: int) -> None:
        self._each = rows_per_second / max(workers, 1)

    def rest(self, rows: int, took: float) -> float:
        """Seconds to wait after a range of so many rows that took so long."""
        return max(0.0, rows / self._each - took) if self._each else 0.0


def stream_lags(source: Connection, pipeline: Connection, source_id: UUID) -> bool:
    """Whether the stream is behind, so that reading should wait for it."""
    row = pipeline.execute(statement("capture.snapshot", "stream_lag"), {"source": source_id}).fetchone()
    if row is None:
        return False
    position, staged = row
    written = int(queries.value(source, "select (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint"))
    return written - int(position) > LAG_BYTES or int(staged) > LAG_ROWS
