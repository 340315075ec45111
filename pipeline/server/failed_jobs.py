"""Which schedules failed when they last ran, and why: the schedule role reports it for status, metrics and /readyz."""

from __future__ import annotations

import logging
import threading

import psycopg
from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent

from pipeline.errors import PipelineError
from pipeline.postgres import connections, role_locks

logger = logging.getLogger(__name__)


class FailedJobs:
    """A listener of APScheduler that logs each failure, and forgets it when the job has run without one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: dict[str, str] = {}

    def __call__(self, event: JobExecutionEvent) -> None:
        """For `add_listener`: take the end of a job."""
        with self._lock:
            self._reasons.pop(event.job_id, None)
            if event.code == EVENT_JOB_ERROR:
                self._reasons[event.job_id] = connections.one_line(event.exception) or type(event.exception).__name__
        if event.code == EVENT_JOB_ERROR:
            _log(event)

    def report(self) -> str | None:
        """Return the failures as the reason of the role, as `role_locks.failed_schedules` reads it."""
        with self._lock:
            return role_locks.in_lines(self._reasons)


def _log(event: JobExecutionEvent) -> None:
    error = event.exception
    if isinstance(error, PipelineError | psycopg.Error):
        logger.warning("%s: %s", event.job_id, connections.one_line(error), extra={"action": "schedule.failed"})
    else:
        logger.error("%s failed", event.job_id, exc_info=error, extra={"action": "schedule.failed"})
