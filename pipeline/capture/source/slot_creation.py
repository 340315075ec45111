"""The session that creates our slot. It may wait long, and a server that is killed meanwhile may leave it behind.

So its application_name has the id of the pipeline database, which no other program's has.
"""

from __future__ import annotations

import logging

import psycopg

from pipeline.capture.source import slot_mark, slots
from pipeline.capture.source.walsender import NAME_PREFIX
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection

logger = logging.getLogger(__name__)
_END_CREATORS = """\
select a.pid, pg_catalog.pg_terminate_backend(a.pid, %(milliseconds)s)
from pg_catalog.pg_stat_activity a
where a.application_name = %(program)s::text and a.datname = pg_catalog.current_database() and a.usename = current_user
"""
"""End this user's sessions that create a slot for this pipeline database."""


def create(dsn: str, pipeline: Connection, name: str) -> int:
    """Create the slot in a separate session, as `slots.create` does; returns the LSN from which the slot streams."""
    program = slots.creator_name(slot_mark.own_id(pipeline)) or "pipeline slots"
    with connections.connect(dsn, "source", name=program) as session:
        try:
            return slots.create(session, name)
        except psycopg.OperationalError as error:
            raise connections.unavailable(dsn, "source", error) from error


def subject(slot: str, program: str) -> str:
    """Return, for `waits.report_waits`, what a start does in a session with this application_name."""
    return f'creating slot "{slot}"' if program.startswith(f"{NAME_PREFIX}slot") else "the start of replication"


def end_left_behind(source: Connection, pipeline: Connection) -> None:
    """End this user's sessions that still create a slot for this pipeline database, and wait until they have ended.

    Only the holder of the replication role may call this.
    """
    program = slots.creator_name(slot_mark.own_id(pipeline))
    values = {"program": program, "milliseconds": slots.END_MILLISECONDS}
    for pid, _ in source.execute(_END_CREATORS, values).fetchall():
        text = "ended the session with pid %s, which an earlier start left behind as it created the slot"
        logger.warning(text, pid, extra={"action": "slot.creator_ended"})
