"""A snapshot worker: a process that takes one range after another, reads it and stages its rows."""

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
"""To start it where there is no fork server."""
IDLE_SECONDS = 0.2
"""Between two looks for a range, while there is none to read."""
SOON_SECONDS = 0.01
"""The same, right after one was read: those under way are moved in a moment."""
HELD_SECONDS, CHANGED_SECONDS = 4.0, 1.0
"""Before a table is tried again that is locked (an attempt waits for 2 s), or that is to be planned anew."""

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
    """Takes ranges until it is stopped. `take` and `staging` are connections to the pipeline database.

    `density`: of relations, by oid, how many rows a block had when one was last read. `held`: of backfills that had to
    wait, by id, until when the ranges of others are taken.
    """

    config: Config
    source: Connection
    take: Connection
    staging: Connection
    source_id: UUID
    reader: RangeReader
    density: dict[int, float] = field(default_factory=dict)
    held: dict[int, float] = field(default_factory=dict)

    def run(self, stop: StopSignal) -> None:
        """Read what there is to read; raises psycopg.Error when a database goes away."""
        rate = ReadRate(self.config.snapshot_max_rows, self.config.snapshot_workers)
        stream, read_at = StreamActivity(self.take, self.source_id), 0.0
        while not stop:
            with reading_session.transaction(self.source, session_settings.SNAPSHOT):
                lags = stream_lags(self.source, self.take, self.source_id)
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

        `about`: only so many rows of it; the rest is another range then.
        """
        self.held = {backfill: until for backfill, until in self.held.items() if until > time.monotonic()}
        taken = ranges.take(self.take, self.source_id, most, list(self.held))
        if taken is None:
            return None
        return self._read(taken if about is None else self._shortened(taken, about), stop)

    def _shortened(self, taken: ClaimedRange, rows: int) -> ClaimedRange:
        if taken.compares or taken.from_block is None or taken.until_block is None:
            return taken
        at = taken.from_block + max(1, round(rows / self.density.get(taken.relation_oid, plan.ROWS_PER_BLOCK)))
        if at >= taken.until_block:
            return taken
        with self.take.transaction():
            if not ranges.shorten(self.take, taken, at):
                return taken
            backfills.more_ranges(self.take, taken.backfill_id, 1)
        return replace(taken, until_block=at)

    def _read(self, taken: ClaimedRange, stop: StopSignal) -> int:
        """Read one range; returns the number of its rows."""
        backfill = backfills.find(self.take, taken.backfill_id)
        if backfill is None or backfill.state not in ("reading", "paused"):
            ranges.drop(self.take, taken.backfill_id, [taken.id])
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
            with suppress(psycopg.Error):  # this database may be what fails
                backfills.wait(self.take, backfill.id, f"{connections.one_line(error)}; it is tried again")
            raise
        return 0

    def _put_off(self, taken: ClaimedRange, backfill: StoredBackfill, reason: str, seconds: float) -> None:
        ranges.give_back(self.take, taken)
        backfills.wait(self.take, backfill.id, reason)
        self.held[backfill.id] = time.monotonic() + seconds

    def _stage(self, taken: ClaimedRange, backfill: StoredBackfill) -> int:
        with RangeWriter(self.staging, self.source_id, taken) as staging:
            self.reader.read(taken, staging, backfill.since_seqs or {}, backfill.condition)
            under_way = backfill.compares and ranges.compares(self.take, backfill.id)
            if (reason := comparing.REASON if under_way else None) != backfill.reason:
                backfills.wait(self.take, backfill.id, reason)
            if taken.until_block and staging.rows:
                self.density[taken.relation_oid] = staging.rows / (taken.until_block - (taken.from_block or 0))
            return staging.rows

    def _compare(self, taken: ClaimedRange, backfill: StoredBackfill, stop: StopSignal) -> int:
        """Plan ranges of the keys that may differ."""
        stored = sources.find(self.take, self.source_id)
        assert stored is not None  # noqa: S101  a worker is of a source
        made = comparing.DifferencePlanner(self.source, self.take, self.staging, stored)
        try:
            if not made.run(taken, backfill, lambda: bool(stop)):
                ranges.give_back(self.take, taken)
        except (TableTruncatedError, TableAlteredError) as error:
            raise PlannedTableChangedError(str(error)) from error
        except psycopg.DataError as error:  # for good, it may be: then the ranges of other tables come first
            raise PlannedTableChangedError(connections.one_line(error)) from error
        return 0

    def _split(self, taken: ClaimedRange, backfill: StoredBackfill, slow: RangeReadTimeoutError) -> None:
        """Read it in two halves, or give up where it cannot be any shorter."""
        if taken.from_block is None or taken.until_block is None or taken.until_block - taken.from_block < 2:
            self._fail(backfill, f"{slow}, also for the shortest range: {slow.remedy}")
            return
        with self.take.transaction():
            ranges.split(self.take, taken, (taken.from_block + taken.until_block) // 2)
            backfills.more_ranges(self.take, backfill.id, 1)

    def _fail(self, backfill: StoredBackfill, reason: str) -> None:
        if backfills.end(self.take, backfill.id, "failed", reason):
            logger.error("%s cannot be read: %s", backfill.table, reason, extra={"action": "snapshot.unreadable"})


if __name__ == "__main__":
    sys.exit(main())


class StreamActivity:
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


def rest_while_lively(took: float, workers: int) -> float:
    """Seconds that one of so many workers waits after a range that took so long, while the stream is lively."""
    return min(YIELD_SECONDS, took * (workers / LIVELY_SHARE - 1))


class ReadRate:
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
