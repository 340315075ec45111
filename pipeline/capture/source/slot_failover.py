"""Turns on the option `failover` of an older slot, so that standbys may keep a copy of it (Postgres 17)."""

from __future__ import annotations

import logging

import psycopg

from pipeline.capture.source import walsender
from pipeline.capture.source.walsender import NAME_PREFIX
from pipeline.errors import PipelineError
from pipeline.postgres import connections

logger = logging.getLogger(__name__)

ALTER_SECONDS = 5.0
"""Seconds that the source has to alter the slot; it waits for a session that reads the slot."""


def enable(dsn: str, slot: str) -> None:
    """Turn on `failover`; no session may read the slot. If the source refuses, the slot stays as it is."""
    command = f'ALTER_REPLICATION_SLOT "{slot}" (FAILOVER true)'
    try:
        with (
            walsender.connect(dsn, f"{NAME_PREFIX}failover") as session,
            connections.limited(session, dsn, "source", ALTER_SECONDS),
        ):
            session.execute(command.encode())
    except (PipelineError, psycopg.Error) as error:
        why = connections.one_line(error)
        logger.warning('slot "%s" stays without failover: %s', slot, why, extra={"action": "slot.no_failover"})
        return
    logger.info('slot "%s" was altered: standbys may copy it', slot, extra={"action": "slot.failover"})
