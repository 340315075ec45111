"""How fast tables are read: the stream goes first, and a limit may be set."""

from __future__ import annotations

import time
from uuid import UUID

from pipeline.log.staging import progress
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

YIELD_SECONDS = 1.0
"""How long a worker waits before its next range while the stream lags: a snapshot never stands still for good."""
LAG_BYTES = 64_000_000
"""The stream lags when the source is so many bytes of WAL ahead of it."""
LAG_ROWS = 20_000
"""And when so many rows of it are staged and are no events yet."""


LIVELY_SECONDS = 1.0
"""So long after a change the stream counts as lively: then commits are to be seen soon, and ranges are short."""
LIVELY_ROWS, LIVELY_RANGES = 2_000, 1
"""About so many rows are one range then, and so many are under way: a change waits until those before it are moved."""
LIVELY_SHARE = 0.4
"""All workers together read for such a share of the time then, so that most changes find no range before them."""
_LOOK_SECONDS = 0.1


class Stream:
    """Whether the stream has changes of its own. Of ranges it brings only markers, which are none."""

    def __init__(self, pipeline: Connection, source_id: UUID) -> None:
        self._pipeline, self._source_id = pipeline, source_id
        self._changes: int | None = None
        self._look_at = self._lively_until = 0.0

    def is_lively(self) -> bool:
        """Looks at most every so often; what came before the first look does not count."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            changes = progress.changes(self._pipeline, self._source_id)
            if self._changes not in (None, changes):
                self._lively_until = now + LIVELY_SECONDS
            self._changes = changes
        return now < self._lively_until


def lively_rest(took: float, workers: int) -> float:
    """Seconds that one of so many workers waits after a range that took so long, while the stream is lively."""
    return min(YIELD_SECONDS, took * (workers / LIVELY_SHARE - 1))


class Rate:
    """A limit of rows a second for all workers together; 0: none."""

    def __init__(self, rows_per_second: int, workers: int) -> None:
        self._each = rows_per_second / max(workers, 1)

    def rest(self, rows: int, took: float) -> float:
        """Seconds to wait after a range of so many rows that took so long."""
        return max(0.0, rows / self._each - took) if self._each else 0.0


def stream_lags(source: Connection, pipeline: Connection, source_id: UUID) -> bool:
    """Whether the stream is behind, so that reading should wait for it."""
    row = pipeline.execute(statement("snapshots", "stream_lag"), {"source": source_id}).fetchone()
    if row is None:
        return False
    position, staged = row
    written = int(queries.value(source, "select (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint"))
    return written - int(position) > LAG_BYTES or int(staged) > LAG_ROWS
