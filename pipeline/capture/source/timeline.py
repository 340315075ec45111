"""Checks that the source is the known one, and that its history contains our position. Pure except for its queries.

After a failover the source is in a new timeline, which forked from the stored one. Parts of a backlog may be staged
beyond the fork: they begin again, unless the log has something of them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.capture.source import sources
from pipeline.capture.source.sources import ReplicationSource
from pipeline.capture.source.walsender import SystemIdentity
from pipeline.errors import DatabaseUnavailableError, HistoryDivergedError, ReplicationError
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn

logger = logging.getLogger(__name__)

ADOPT = "`pipeline sources adopt` continues in a new epoch"
"""The remedy when positions are no longer valid."""
FetchHistory = Callable[[int], str]
"""Returns the history of a timeline, as TIMELINE_HISTORY does."""


@dataclass(frozen=True)
class StagedReach:
    """How far a source is staged. `kept`: by worker 0, and by parts of a backlog of which the log has something.

    `furthest`: by all workers. Parts beyond `kept` can be read again.
    """

    kept: int
    furthest: int


def read_reach(connection: Connection, source_id: uuid.UUID) -> StagedReach | None:
    """Return how far this source is staged; None if it was never replicated."""
    return queries.one(connection, StagedReach, statement("capture.source", "staged_reach"), {"source": source_id})


def read_identity(source: Connection) -> SystemIdentity:
    """Return the same as IDENTIFY_SYSTEM, over an ordinary connection."""
    row = source.execute(statement("capture.source", "identity")).fetchone()
    assert row is not None  # noqa: S101  a query without a table
    return SystemIdentity(*row)


def switch_point(timeline_history: str, timeline: int) -> int | None:
    """Return where a timeline ended, from the TIMELINE_HISTORY of a later one; None if it is not an ancestor."""
    for line in timeline_history.splitlines():
        fields = line.split("\t")
        if fields[0].strip() == str(timeline) and len(fields) > 1:
            return lsn.parse(fields[1].strip())
    return None


def require_continued(
    stored: ReplicationSource, identity: SystemIdentity, reach: StagedReach | None, fetch_history: FetchHistory
) -> None:
    """Raises HistoryDivergedError if positions are stored that are not in this source's history.

    `fetch_history` is called only if the timeline is not the stored one.
    """
    if reach is None:
        return
    known = (stored.system_identifier, stored.database_name)
    if known != (identity.system_identifier, identity.database):
        raise HistoryDivergedError(
            f"the source is database {identity.database} of cluster {identity.system_identifier}, but positions are "
            f"stored for {stored.database_name} of {stored.system_identifier}, and LSNs of the two do not compare: "
            f"point PIPELINE_SOURCE_DSN back; or, if it replaces the other, {ADOPT}, after pg_upgrade with --upgraded"
        )
    position = reach.furthest
    if stored.timeline is not None and identity.timeline != stored.timeline:
        position = reach.kept
        _require_ancestor(stored.timeline, identity.timeline, position, fetch_history)
    if identity.flushed < position:
        raise HistoryDivergedError(
            f"the source has written WAL only up to {lsn.show(identity.flushed)}, but we have stored up to "
            f"{lsn.show(position)}: it was restored to an earlier state, and later changes are in the log, not in its "
            f"history; {ADOPT}"
        )


def require_same(stored: ReplicationSource, now: SystemIdentity) -> None:
    """Raises DatabaseUnavailableError if a connection leads to another timeline than the one that was checked.

    A failover may come between two connections: only the next start checks the new timeline.
    """
    if stored.timeline not in (None, now.timeline):
        raise DatabaseUnavailableError(
            f"the source went from timeline {stored.timeline} to {now.timeline} while it was read; it is checked again"
        )


def store_timeline(
    connection: Connection, stored: ReplicationSource, identity: SystemIdentity, fetch_history: FetchHistory
) -> None:
    """Store the timeline that the source is in now, and let parts that are staged beyond the fork begin again.

    Raises HistoryDivergedError as `require_continued` does, having changed nothing. No helper may read yet.
    """
    rewound: list[tuple[int]] = []
    with connection.transaction():
        connection.execute("set local synchronous_commit = on")
        if stored.timeline is not None:
            # Locked in the shuffler's order, so that it moves nothing in between.
            connection.execute(statement("log.staging", "hold_watermark"), {"source": stored.id})
            connection.execute("lock table pipeline.segments in share row exclusive mode")
            reach = read_reach(connection, stored.id)
            fork = _require_ancestor(stored.timeline, identity.timeline, reach.kept if reach else 0, fetch_history)
            values = {"source": stored.id, "fork": fork}
            rewound = connection.execute(statement("capture.source", "rewind_parts"), values).fetchall()
        sources.store_timeline(connection, stored.id, identity.timeline)
    for (worker,) in rewound:
        text = "part %s of a backlog begins again: it was read beyond the fork into timeline %s"
        logger.warning(text, worker, identity.timeline, extra={"action": "catchup.rewound", "part": worker})


def _require_ancestor(before: int, now: int, position: int, fetch_history: FetchHistory) -> int:
    """Return where timeline `now` forked from timeline `before`."""
    end = None
    if now > before:
        try:
            end = switch_point(fetch_history(now), before)
        except ReplicationError as error:
            raise HistoryDivergedError(
                f"the source went from timeline {before} to {now}, and cannot say where ({error}): we do not know "
                f"whether our position {lsn.show(position)} is in its history; {ADOPT}"
            ) from error
    if end is None:
        raise HistoryDivergedError(
            f"the source is in timeline {now}, and timeline {before}, of which we have stored up to "
            f"{lsn.show(position)}, is not in its history; {ADOPT}"
        )
    if end < position:
        raise HistoryDivergedError(
            f"the source forked into timeline {now} at {lsn.show(end)}, before our position {lsn.show(position)}: what "
            f"the log has from {lsn.show(end)} to {lsn.show(position)} is not in its history; {ADOPT}"
        )
    return end
