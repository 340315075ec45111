"""Checks that the source is the known one, and that its history contains our position. Pure except for its queries."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.capture.source.sources import ReplicationSource
from pipeline.capture.source.walsender import SystemIdentity
from pipeline.errors import HistoryDivergedError, ReplicationError
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn

ADOPT = "`pipeline sources adopt` continues in a new epoch"
"""The remedy when positions are no longer valid."""


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
    stored: ReplicationSource, identity: SystemIdentity, position: int | None, fetch_history: Callable[[int], str]
) -> None:
    """Raises HistoryDivergedError if positions are stored that are not in this source's history.

    `fetch_history` returns the history of a timeline; it is called only if the timeline is not the stored one.
    """
    if position is None:
        return
    known = (stored.system_identifier, stored.database_name)
    if known != (identity.system_identifier, identity.database):
        raise HistoryDivergedError(
            f"the source is database {identity.database} of cluster {identity.system_identifier}, but positions are "
            f"stored for {stored.database_name} of {stored.system_identifier}, and LSNs of the two do not compare: "
            f"point PIPELINE_SOURCE_DSN back; or, if it replaces the other, {ADOPT}"
        )
    if stored.timeline is not None and identity.timeline != stored.timeline:
        _require_ancestor(stored.timeline, identity.timeline, position, fetch_history)
    if identity.flushed < position:
        raise HistoryDivergedError(
            f"the source has written WAL only up to {lsn.show(identity.flushed)}, but we have stored up to "
            f"{lsn.show(position)}: it was restored to an earlier state, and later changes are in the log, not in its "
            f"history; {ADOPT}"
        )


def _require_ancestor(before: int, now: int, position: int, fetch_history: Callable[[int], str]) -> None:
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
