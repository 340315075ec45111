"""A snapshot worker: a process that claims one range after another, reads it and stages its rows."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import UUID

import psycopg
from setproctitle import setproctitle

from pipeline import logs
from pipeline.capture.source import sources
from pipeline.comparing.log_state import TableTruncatedError
from pipeline.comparing.source_rows import TableAlteredError
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import ConditionRefusedError, DatabaseUnavailableError, NotComparableError, PipelineError
from pipeline.log.staging import progress, ranges
from pipeline.log.staging.range_writer import RangeWriter
from pipeline.log.staging.ranges import ClaimedRange
from pipeline.postgres import connections, queries, reading_session, session_settings, waits
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.process.child import RETRY
from pipeline.process.signals import StopSignal, live_with_parent, read_settings
from pipeline.snapshots import backfills, comparing, plan
from pipeline.snapshots.backfills import StoredBackfill
from pipeline.snapshots.reader import RangeReader, RangeReadTimeoutError, TableReadBlockedError
from pipeline.snapshots.shapes import PlannedTableChangedError, TableUnreadableError

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "pipeline.snapshots.worker")
"""The command that starts a worker if there is no fork server."""
IDLE_SECONDS = 0.2
"""Seconds between two queries for a range, while there is none to read."""
SOON_SECONDS = 0.01
"""Seconds between two queries right after a range was read, because ranges under way are moved soon."""
HELD_SECONDS, CHANGED_SECONDS = 4.0, 1.0
"""Seconds before a worker tries a table again: if it is locked (an attempt waits for 2 s), and if it has changed."""

YIELD_SECONDS = 1.0
"""Seconds that a worker waits before its next range while the stream lags, so that the snapshot still advances."""
LAG_BYTES = 64_000_000
"""The stream lags if the source is more than this many bytes of WAL ahead of it."""
LAG_ROWS = 20_000
"""The stream also lags if more than this many of its rows are staged and not yet events."""


LIVELY_SECONDS = 1.0
"""The stream counts as lively for this many seconds after a change.

Ranges are short then, so that commits arrive soon.
"""
LIVELY_ROWS, LIVELY_RANGES = 2_000, 1
"""The approximate rows of a range, and the most ranges under way, while the stream is lively.

They are low because a change waits for the ranges before it.
"""
LIVELY_SHARE = 0.4
"""While the stream is lively, all workers together read for this share of the time: most changes wait for no range."""
_LOOK_SECONDS = 0.1


def main() -> int:
    """Read ranges with the settings in the first line of standard input until told to stop; returns the status."""
    if (given := read_settings()) is None:
        return RETRY
    config = settings.from_json(given)
    setproctitle("pipeline: snapshot worker")
    logs.setup(config.log_level, config.log_format, "snapshot worker")
    stop = StopSignal(ignore_interrupt=True)
    waits.end_at_stop(stop)
    live_with_parent()
    try:
        _run(config, stop)
    except PipelineError as error:
        logger.warning("%s", error, extra={"action": "snapshot.failed"})
        return RETRY if isinstance(error, DatabaseUnavailableError) else error.exit_code
    except Exception:
        logger.exception("unexpected error", extra={"action": "snapshot.failed"})
        return RETRY
    return 0


def _run(config: Config, stop: StopSignal) -> None:
    name = "pipeline snapshot worker"
    with (
        reading_session.connect(config, name=name, settings=session_settings.SNAPSHOT) as source,
        connections.connect(config.database, "pipeline database", name=name) as pipeline,
        connections.connect(config.database, "pipeline database", name=f"{name} staging") as staging,
    ):
        try:
            stored = sources.find(pipeline, config.source_id)
            if stored is None:
                return
            found = RangeReader(source, pipeline, stored)
            SnapshotWorker(config, source, pipeline, staging, stored.id, found).run(stop)
        except psycopg.Error as error:
            if connections.is_ours(error):
                raise
            raise connections.unavailable_one(source, config.source_reading, config.database, error) from error


@dataclass
class SnapshotWorker:
    """Reads ranges until told to stop. `claiming` and `staging` are connections to the pipeline database.

    `density`: by oid of a relation, the rows per block in the range that was last read. `held`: by id, until when a
    backfill that had to wait is skipped.
    """

    config: Config
    source: Connection
    claiming: Connection
    staging: Connection
    source_id: UUID
    reader: RangeReader
    density: dict[int, float] = field(default_factory=dict)
    held: dict[int, float] = field(default_factory=dict)

    def run(self, stop: StopSignal) -> None:
        """Read all ranges until told to stop. Raises psycopg.Error if the connection to a database fails."""
        rate = ReadRate(self.config.snapshot_max_rows, self.config.snapshot_workers)
        stream, read_at = StreamActivity(self.claiming, self.source_id), 0.0
        while not stop:
            with reading_session.transaction(self.source, session_settings.SNAPSHOT):
                lags = stream_lags(self.source, self.claiming, self.source_id)
            if lags:
                stop.wait(YIELD_SECONDS)
            started = time.monotonic()
            if lively := stream.is_lively():
                rows = self.read_next(stop, LIVELY_RANGES, LIVELY_ROWS)
            else:
                rows = self.read_next(stop, 2 * self.config.snapshot_workers + 1)
            if rows is None:
                stop.wait(SOON_SECONDS if started < read_at + IDLE_SECONDS else IDLE_SECONDS)
            else:
                read_at = time.monotonic()
                took = read_at - started
                rest = rest_while_lively(took, self.config.snapshot_workers) if lively else 0.0
                stop.wait(max(rest, rate.rest(rows, took)))

    def read_next(self, stop: StopSignal, most: int = 1_000, about: int | None = None) -> int | None:
        """Read the next range, unless `most` are under way; returns the number of its rows, None when there is none.

        `about`: read about this many rows; the others become another range.
        """
        self.held = {backfill: until for backfill, until in self.held.items() if until > time.monotonic()}
        taken = ranges.claim_range(self.claiming, self.source_id, most, list(self.held))
        if taken is None:
            return None
        return self._read(taken if about is None else self._shortened(taken, about), stop)

    def _shortened(self, taken: ClaimedRange, rows: int) -> ClaimedRange:
        if taken.compares or taken.from_block is None or taken.until_block is None:
            return taken
        at = taken.from_block + max(1, round(rows / self.density.get(taken.relation_oid, plan.ROWS_PER_BLOCK)))
        if at >= taken.until_block:
            return taken
        with self.claiming.transaction():
            if not ranges.shorten(self.claiming, taken, at):
                return taken
            backfills.more_ranges(self.claiming, taken.backfill_id, 1)
        return replace(taken, until_block=at)

    def _read(self, taken: ClaimedRange, stop: StopSignal) -> int:
        """Read one range, and return the number of its rows."""
        backfill = backfills.find(self.claiming, taken.backfill_id)
        if backfill is None or backfill.state not in ("reading", "paused"):
            ranges.drop(self.claiming, taken.backfill_id, [taken.id])
            return 0
        try:
            return self._compare(taken, backfill, stop) if taken.compares else self._stage(taken, backfill)
        except TableReadBlockedError as held:
            self._put_off(taken, backfill, str(held), HELD_SECONDS)
        except PlannedTableChangedError as changed:
            logger.info("%s is read again: %s", backfill.table, changed, extra={"action": "snapshot.changed"})
            self._put_off(taken, backfill, str(changed), CHANGED_SECONDS)
        except RangeReadTimeoutError as slow:
            self._split(taken, backfill, slow)
            if self.source.closed:
                raise DatabaseUnavailableError(f"the source ended a session: {slow}; it is tried again") from slow
            return 0
        except (TableUnreadableError, ConditionRefusedError, NotComparableError) as error:
            self._fail(backfill, str(error))
            return 0
        except (psycopg.Error, DatabaseUnavailableError) as error:
            with suppress(psycopg.Error):  # the pipeline database may be the one that failed
                backfills.wait(self.claiming, backfill.id, f"{connections.one_line(error)}; it is tried again")
            raise
        return 0

    def _put_off(self, taken: ClaimedRange, backfill: StoredBackfill, reason: str, seconds: float) -> None:
        ranges.give_back(self.claiming, taken)
        backfills.wait(self.claiming, backfill.id, reason)
        self.held[backfill.id] = time.monotonic() + seconds

    def _stage(self, taken: ClaimedRange, backfill: StoredBackfill) -> int:
        with RangeWriter(self.staging, self.source_id, taken) as staging:
            self.reader.read(taken, staging, backfill.since_seqs or {}, backfill.condition)
            under_way = backfill.compares and ranges.has_comparison(self.claiming, backfill.id)
            if (reason := comparing.REASON if under_way else None) != backfill.reason:
                backfills.wait(self.claiming, backfill.id, reason)
            if taken.until_block and staging.rows:
                self.density[taken.relation_oid] = staging.rows / (taken.until_block - (taken.from_block or 0))
            return staging.rows

    def _compare(self, taken: ClaimedRange, backfill: StoredBackfill, stop: StopSignal) -> int:
        """Compare the table, and plan ranges of the keys that may differ."""
        stored = sources.find(self.claiming, self.source_id)
        assert stored is not None  # noqa: S101  a worker is of a source
        made = comparing.DifferencePlanner(self.source, self.claiming, self.staging, stored)
        try:
            if not made.run(taken, backfill, lambda: bool(stop)):
                ranges.give_back(self.claiming, taken)
        except (TableTruncatedError, TableAlteredError) as error:
            raise PlannedTableChangedError(str(error)) from error
        except psycopg.DataError as error:  # perhaps permanent, so ranges of other tables come first
            raise PlannedTableChangedError(connections.one_line(error)) from error
        return 0

    def _split(self, taken: ClaimedRange, backfill: StoredBackfill, slow: RangeReadTimeoutError) -> None:
        """Split the range into two halves, or fail the backfill if the range cannot be shorter."""
        if taken.from_block is None or taken.until_block is None or taken.until_block - taken.from_block < 2:
            self._fail(backfill, f"{slow}, also for the shortest range: {slow.remedy}")
            return
        with self.claiming.transaction():
            ranges.split(self.claiming, taken, (taken.from_block + taken.until_block) // 2)
            backfills.more_ranges(self.claiming, backfill.id, 1)

    def _fail(self, backfill: StoredBackfill, reason: str) -> None:
        if backfills.end(self.claiming, backfill.id, "failed", reason):
            logger.error("%s cannot be read: %s", backfill.table, reason, extra={"action": "snapshot.unreadable"})


if __name__ == "__main__":
    sys.exit(main())


class StreamActivity:
    """Knows whether the stream brings changes. Markers of ranges are no changes."""

    def __init__(self, pipeline: Connection, source_id: UUID) -> None:
        self._pipeline, self._source_id = pipeline, source_id
        self._changes: int | None = None
        self._look_at = self._lively_until = 0.0

    def is_lively(self) -> bool:
        """True if a change arrived in the last LIVELY_SECONDS.

        Queries at most once in _LOOK_SECONDS; changes before the first query do not count.
        """
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            changes = progress.changes(self._pipeline, self._source_id)
            if self._changes not in (None, changes):
                self._lively_until = now + LIVELY_SECONDS
            self._changes = changes
        return now < self._lively_until


def rest_while_lively(took: float, workers: int) -> float:
    """Return how many seconds a worker pauses after a range that took `took` seconds, while the stream is lively."""
    return min(YIELD_SECONDS, took * (workers / LIVELY_SHARE - 1))


class ReadRate:
    """A limit of rows a second for all workers together; 0: no limit."""

    def __init__(self, rows_per_second: int, workers: int) -> None:
        self._each = rows_per_second / max(workers, 1)

    def rest(self, rows: int, took: float) -> float:
        """Return how many seconds to wait after a range of `rows` rows that took `took` seconds."""
        return max(0.0, rows / self._each - took) if self._each else 0.0


def stream_lags(source: Connection, pipeline: Connection, source_id: UUID) -> bool:
    """True if the stream lags, so that reading should wait for it."""
    row = pipeline.execute(statement("snapshots", "stream_lag"), {"source": source_id}).fetchone()
    if row is None:
        return False
    position, staged = row
    written = int(queries.value(source, "select (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint"))
    return written - int(position) > LAG_BYTES or int(staged) > LAG_ROWS
