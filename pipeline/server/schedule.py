"""The schedule role: jobs that APScheduler runs at their times."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial

import psycopg
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.schedulers.background import BackgroundScheduler

from pipeline.capture.replication import prepare
from pipeline.config import cron
from pipeline.config.settings import Config
from pipeline.errors import ExportBusyError, ExportStoppedError, PipelineError, RetentionBusyError
from pipeline.exports import compaction, extra, lakes, requests, status
from pipeline.exports.child import KeptProcess, ScriptEvent
from pipeline.log import indexes, table_shape
from pipeline.log.table import EventsTable
from pipeline.operate import retention as drop_old
from pipeline.operate.samples import sample
from pipeline.operate.verify import content, verifications
from pipeline.postgres import connections, role_locks
from pipeline.postgres.connections import Connection
from pipeline.postgres.kept_sessions import KeptSessions
from pipeline.process import supervised
from pipeline.process.signals import StopSignal
from pipeline.wires.pgdeltastream.sessions import bounds

logger = logging.getLogger(__name__)

SAMPLE_SECONDS = 5
"""Seconds between two samples of positions and counts, from which rates are made."""
PUBLISH_SECONDS = 2
"""Seconds between two checks for new tables, and for tables that got or lost their key."""
SESSIONS_SECONDS = 5
"""Seconds between two checks for sessions that must end, and for slots of ended ones."""
INDEX_SECONDS = 3600
"""Seconds between two checks for an index that a legacy events table lacks."""
RETENTION_SECONDS = 60.0
"""The most seconds between two checks for events that are old enough to be dropped; fewer with a short retention."""


class _Scheduler(BackgroundScheduler):  # type: ignore[misc]
    """APScheduler, whose thread starts again after an unexpected error: the role would hold on without any job."""

    def _main_loop(self) -> None:
        supervised.run("schedule", self._loop)

    def _loop(self) -> None:
        self.wakeup()  # else it waits first until something wakes it
        super()._main_loop()


def run(config: Config, connection: Connection, stop: StopSignal, report: Callable[[str | None], None]) -> None:
    """Run the jobs until told to stop. `connection` holds the role; when it breaks, this raises.

    `report` is called with the schedules that failed when they last ran, each time that this has changed.
    """
    ending = threading.Event()
    kept, sessions, failed = KeptProcess(), publishing_sessions(config), FailedJobs()
    scheduler, off = planned(config, lambda: bool(stop) or ending.is_set(), kept, sessions), status.why_off(config)
    scheduler.add_listener(failed, EVENT_JOB_ERROR | EVENT_JOB_EXECUTED)
    scheduler.start()
    reported: str | None = None
    try:
        while not stop.wait(1.0):
            # The role is held only as long as this session lives, which this statement shows, too.
            if requests.answer(connection, off) and not off:
                scheduler.modify_job("export", next_run_time=datetime.now(UTC))
            if (now := failed.report()) != reported:
                report(now)
                reported = now
    finally:
        ending.set()  # a running export ends before the role does
        scheduler.shutdown(wait=True)
        kept.close()
        sessions.close()


def planned(
    config: Config, stopped: Callable[[], bool], kept: KeptProcess | None = None, sessions: KeptSessions | None = None
) -> BackgroundScheduler:
    """Return the jobs for these settings, not started. No job runs twice at a time; missed times run once.

    `stopped` ends a running export, and a retention run between two of its steps. `kept` has a Spark session between
    two exports, if the settings say so; `sessions` has those of `publish_new_tables` between two runs.
    """
    defaults = {"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
    scheduler = _Scheduler(timezone="UTC", job_defaults=defaults)
    for act, seconds, arguments in (
        (sample, SAMPLE_SECONDS, [config]),
        (publish_new_tables, PUBLISH_SECONDS, [config, sessions]),
        (end_sessions, SESSIONS_SECONDS, [config]),
    ):
        scheduler.add_job(act, "interval", arguments, id=act.__name__, seconds=seconds)
    at_once = datetime.now(UTC)
    scheduler.add_job(
        index_history, "interval", [config, stopped], id="indexes", seconds=INDEX_SECONDS, next_run_time=at_once
    )
    if (keep := config.retention_seconds) is not None:
        often = min(RETENTION_SECONDS, max(1.0, keep / 20))
        # A second run that finds the first still at work ends at once.
        scheduler.add_job(retention, "interval", [config, stopped], id="retention", seconds=often, max_instances=2)
    if off := status.why_off(config):
        logger.info("exports are off: %s", off, extra={"action": "export.off"})
    else:
        for _, reason, remedy in extra.problems(config.export_formats):
            logger.warning("exports will fail: %s; %s", reason, remedy, extra={"action": "export.lacks"})
        if config.export_compaction != cron.OFF:
            scheduler.add_job(compact, cron.parse(config.export_compaction), [config, stopped], id="compaction")
        scheduler.add_job(export, cron.parse(config.export_schedule), [config, stopped, kept], id="export")
    if config.verify_schedule != cron.OFF:
        scheduler.add_job(verify, cron.parse(config.verify_schedule), [config, stopped], id="verify")
    return scheduler


def publishing_sessions(config: Config) -> KeptSessions:
    """Return the sessions of `publish_new_tables`, at the source and the pipeline database."""
    return KeptSessions(partial(prepare.connect, config, name="pipeline publish"))


def publish_new_tables(config: Config, sessions: KeptSessions | None = None) -> None:
    """Bring the publications that this server created up to date with the tables that exist.

    Uses `sessions`, which stay open; without them it opens its own.
    """
    if sessions is None:
        with closing(publishing_sessions(config)) as own:
            publish_new_tables(config, own)
        return
    with sessions.lend() as (source, pipeline):
        prepare.publish_new_tables(config, source, pipeline)


def end_sessions(config: Config) -> None:
    """End the sessions that must end; slots outlive the setting by which their wire was served."""
    bounds.enforce(config)


def index_history(config: Config, stopped: Callable[[], bool]) -> None:
    """Build the index for the history of a row if a legacy table lacks it. It may take hours, and starts again if
    the server ends before.
    """
    with connections.connect(config.database, "pipeline database", name="pipeline index") as connection:
        for name in config.events_tables:
            _index_history(connection, EventsTable.parse(name), stopped)


def _index_history(connection: Connection, table: EventsTable, stopped: Callable[[], bool]) -> None:
    found = table_shape.describe_relation(connection, table)
    if found is None or not found.is_current or indexes.index_exists(connection, found.oid, indexes.ROW_HISTORY):
        return
    logger.info("building the index for the history of a row", extra={"action": "index.making", "table": str(table)})
    try:
        with _cancelled(connection, stopped):
            indexes.build(connection, found.oid, indexes.ROW_HISTORY)
    except psycopg.errors.QueryCanceled:
        return
    logger.info("the index is built", extra={"action": "index.made", "table": str(table)})


@contextmanager
def _cancelled(connection: Connection, stopped: Callable[[], bool]) -> Iterator[None]:
    """Cancel the statement inside the block when the server is asked to stop."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            if stopped():
                connection.cancel()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def export(config: Config, stopped: Callable[[], bool], kept: KeptProcess | None = None) -> None:
    """Export what is new in the log to the lake, in a separate process; starts none when nothing is new."""
    try:
        made = lakes.export(config, "schedule", _log_lost, stopped, kept=kept)
    except ExportBusyError as error:
        logger.info("%s", error, extra={"action": "export.busy"})
    except ExportStoppedError as error:
        logger.info("%s", error, extra={"action": "export.stopped"})
    else:
        for each in made:
            found = each.outcome
            if found.rows:
                values = {"rows": found.rows, "seq": found.exported_upto, "seconds": round(found.seconds, 1)}
                of = {"run": found.run, "events_table": each.events_table}
                logger.info("exported", extra={"action": "export.done", **of, **values})


def _log_lost(event: ScriptEvent) -> None:
    if event["event"] == "set_aside":
        logger.warning(
            "the lake had what the log lost when it was restored: %s files were moved to %s",
            event["files"],
            event["folder"],
            extra={"action": "export.set_aside", "seq": event["jump"]},
        )


def compact(config: Config, stopped: Callable[[], bool]) -> None:
    """Merge small files of the lake, in a separate process; starts none when nothing is small."""
    try:
        made = compaction.compact(config, _log_lost, stopped)
    except ExportStoppedError as error:
        logger.info("%s", error, extra={"action": "compaction.stopped"})
        return
    for each in made:
        if each.files_before:
            values = {"events_table": each.events_table, "before": each.files_before, "after": each.files_after}
            logger.info("small files merged", extra={"action": "compaction.done", **values})


def retention(config: Config, stopped: Callable[[], bool]) -> None:
    """Drop events that are older than PIPELINE_RETENTION and that no reader needs."""
    try:
        found = drop_old.run(config, stopped)
    except RetentionBusyError as error:
        logger.debug("%s", error, extra={"action": "retention.busy"})
        return
    if found.partitions or found.rows:
        values = {"partitions": found.partitions, "rows": found.rows, "below": found.below}
        logger.info("old events dropped", extra={"action": "retention.dropped", **values})
    if found.waiting:
        logger.debug("a reader locks a partition that must be dropped", extra={"action": "retention.waiting"})


def verify(config: Config, stopped: Callable[[], bool]) -> None:
    """Compare the log with the rows of the source; what differs is in the status."""
    found = content.run(config, [], stopping=stopped, asked_by=verifications.SCHEDULE)
    values = {"rows": found.rows, "differing": found.differing, "tables": len(found.compared)}
    if found.differing:
        names = ", ".join(table.table for table in found.tables if table.state == "differs")
        logger.error(
            "the log differs from the source in %s; `pipeline verify --content` names the rows",
            names,
            extra={"action": "verify.differs", **values},
        )
    else:
        logger.info("the log was compared with the source", extra={"action": "verify.done", **values})


class FailedJobs:
    """A listener of APScheduler that logs each failure, and forgets it when the job has run without one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: dict[str, str] = {}

    def __call__(self, event: JobExecutionEvent) -> None:
        """Take the end of a job, for `add_listener`."""
        with self._lock:
            self._reasons.pop(event.job_id, None)
            if event.code == EVENT_JOB_ERROR:
                self._reasons[event.job_id] = connections.one_line(event.exception) or type(event.exception).__name__
        if event.code == EVENT_JOB_ERROR:
            _log_failure(event)

    def report(self) -> str | None:
        """Return the failures as the reason of the role, as `role_locks.failed_schedules` reads it."""
        with self._lock:
            return role_locks.join_reasons(self._reasons)


def _log_failure(event: JobExecutionEvent) -> None:
    error = event.exception
    if isinstance(error, PipelineError | psycopg.Error):
        logger.warning("%s: %s", event.job_id, connections.one_line(error), extra={"action": "schedule.failed"})
    else:
        logger.error("%s failed", event.job_id, exc_info=error, extra={"action": "schedule.failed"})
