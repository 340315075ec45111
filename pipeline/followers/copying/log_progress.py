"""Checks if a follower has applied the log up to a place, such as those of its copies.

Until the follower is past the places of all its copies, its tables are as of different moments.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.snapshot_copy import SnapshotCopy
from pipeline.followers.applying.table_versions import HistoryPlace
from pipeline.log.staging import progress
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_LAST = 2**31 - 1
_MORE_EVENTS = """\
select exists (select from pipeline.events e where e.seq > %(seq)s and e.source_database_id = %(source)s)
"""
"""Check whether the log has events of a source after a seq."""


def outstanding(
    log: Connection, here: FollowerPosition, made: Mapping[int, SnapshotCopy | None]
) -> dict[int, SnapshotCopy]:
    """Return the copies, by oid, that may already contain events after this position."""
    found = {oid: copy for oid, copy in made.items() if copy is not None and not _is_past(here, copy.place)}
    return found if found and not _at_the_end(log, here, max(copy.place for copy in found.values())) else {}


def reaches(log: Connection, here: FollowerPosition, place: HistoryPlace) -> bool:
    """Return True if the follower has applied everything before this place."""
    return _is_past(here, place) or _at_the_end(log, here, place)


def _is_past(here: FollowerPosition, place: HistoryPlace) -> bool:
    return place <= HistoryPlace(here.source_epoch, here.commit_lsn or 0, _LAST)


def _at_the_end(log: Connection, here: FollowerPosition, place: HistoryPlace) -> bool:
    """Return True if the log has no event after the position, and can get none before this place.

    Then the position does not move past the place until the source is written again.
    """
    epoch = queries.value(log, statement("followers.copying", "source_epoch"), {"source": here.source})
    if epoch is None or epoch < place.epoch:
        return False
    # All events that were staged in an epoch are in the log before the next epoch begins.
    if epoch == place.epoch and not progress.log_reaches(log, here.source, place.lsn)[0]:
        return False
    return not queries.value(log, _MORE_EVENTS, vars(here))
