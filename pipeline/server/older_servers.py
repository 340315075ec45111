"""Servers of the version before that still work on the pipeline database, and what has to wait for their end."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pipeline.postgres import role_locks
from pipeline.postgres.connections import Connection
from pipeline.process.signals import Stop

logger = logging.getLogger(__name__)


def outlive_shuffler(connection: Connection, report: Callable[[str], None], stop: Stop, every: float) -> bool:
    """Wait until the shuffler can read what this version's worker stages; False when asked to stop before.

    `report` is called with what it waits for; `every`: seconds between two looks.
    """
    waited_for: str | None = None
    while (older := role_locks.older_holder(connection, "shuffle")) is not None:
        if older != waited_for:
            reason = f"the shuffler of {older} is of an older version, which cannot read what this one stages: end it"
            report(reason)
            logger.warning("waiting: %s", reason, extra={"action": "replication.waiting"})
            waited_for = older
        if stop.wait(every):
            return False
    return True
