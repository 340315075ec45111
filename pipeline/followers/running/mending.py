"""What is in the way of a follower and can be mended by itself: then it begins anew from where it is."""

from __future__ import annotations

import logging

from pipeline.errors import CursorExpired, NotFollowable, Refused
from pipeline.followers.registry import Follower
from pipeline.followers.running import beginning
from pipeline.followers.schema_changes.changes import SchemaChanges
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection

logger = logging.getLogger(__name__)


def is_mended(
    error: CursorExpired | NotFollowable | Refused,
    log: Connection,
    follower: Connection,
    found: Follower,
    changes: SchemaChanges,
) -> bool:
    """Whether it is there no longer. Raises what stops the follower instead."""
    if isinstance(error, CursorExpired):
        return _skip_expired(log, follower, found, changes)
    if isinstance(error, Refused):
        return changes.explain(error)
    if error.why in ("changed", "unknown"):
        changes.follow(error)
        return True
    return False


def _skip_expired(log: Connection, follower: Connection, found: Follower, changes: SchemaChanges) -> bool:
    """Whether it goes on without what the log does not have any more, since all tables are copied anew."""
    head = int(queries.value(log, "select pipeline.log_head()"))
    changes.look()  # what is new up to there is not looked for after it
    skipped = beginning.skip_expired(log, follower, found, head)
    if skipped:
        extra = {"action": "follower.skipped_expired", "seq": head}
        logger.info("%s: goes on from seq %s with copies of all tables", found.name, head, extra=extra)
    return skipped
