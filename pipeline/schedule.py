"""The schedule role: what runs at which interval. APScheduler says when, each job says what."""

from __future__ import annotations

import logging
from dataclasses import asdict

import psycopg
from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent
from apscheduler.schedulers.background import BackgroundScheduler

from pipeline import db
from pipeline.config import Config
from pipeline.db import Connection, sql
from pipeline.errors import PipelineError
from pipeline.loop import Stop
from pipeline.operations import status
from pipeline.replication import preparation

logger = logging.getLogger(__name__)

SAMPLE_SECONDS = 5
"""Between two samples of positions and counts, from which rates are made."""
PUBLISH_SECONDS = 2
"""Between two looks for tables that have come, or whose key came or went."""


def run(config: Config, connection: Connection, stop: Stop) -> None:
    """Run the jobs until told to stop. `connection` holds the role; when it breaks, this raises."""
    scheduler = BackgroundScheduler(timezone="UTC", job_defaults={"coalesce": True, "max_instances": 1})
    for job, seconds in ((sample, SAMPLE_SECONDS), (publish_new_tables, PUBLISH_SECONDS)):
        scheduler.add_job(job, "interval", [config], id=job.__name__, seconds=seconds, misfire_grace_time=None)
    scheduler.add_listener(_log_failure, EVENT_JOB_ERROR)
    scheduler.start()
    try:
        while not stop.wait(1.0):
            connection.execute("select 1")  # the role is ours only as long as this session lives
    finally:
        scheduler.shutdown(wait=True)


def sample(config: Config) -> None:
    """Store positions and counts as they are now."""
    with db.connect(config.database, "pipeline database", name="pipeline sample") as connection:
        now = status.read(config, connection)
        values = {**asdict(now.progress), "source_lsn": now.source_lsn, "confirmed_lsn": now.confirmed_lsn}
        connection.execute(sql("operations", "add_sample"), values)


def publish_new_tables(config: Config) -> None:
    """Bring the publications that we made up to date with the tables there are."""
    source, pipeline = preparation.connect(config, name="pipeline publish")
    with source, pipeline:
        preparation.publish_new_tables(config, source, pipeline)


def _log_failure(event: JobExecutionEvent) -> None:
    error = event.exception
    if isinstance(error, PipelineError | psycopg.Error):
        logger.warning("%s: %s", event.job_id, db.one_line(error), extra={"action": "schedule.failed"})
    else:
        logger.error("%s failed", event.job_id, exc_info=error, extra={"action": "schedule.failed"})
