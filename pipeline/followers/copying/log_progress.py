"""Checks how far a follower has applied the log, compared with its copies.

Until the follower is past its copies, its tables have the state of different moments.
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
    found = {oid: copied for oid, copied in made.items() if copied is not None and not _is_behind(here, copied.place)}
    return found if found and not _at_the_end(log, here, max(copied.place for copied in found.values())) else {}


def reaches(log: Connection, here: FollowerPosition, place: HistoryPlace) -> bool:
    """Return True if everything before this place of the log is applied."""
    return _is_behind(here, place) or _at_the_end(log, here, place)


def _is_behind(here: FollowerPosition, place: HistoryPlace) -> bool:
    return place <= HistoryPlace(here.source_epoch, here.commit_lsn or 0, _LAST)


def _at_the_end(log: Connection, here: FollowerPosition, newest: HistoryPlace) -> bool:
    """Return True if the log has no event after the position, and can get none before this place.

    This is so if nothing is written at the source.
    """
    epoch = queries.value(log, statement("followers.copying", "source_epoch"), {"source": here.source})
    if epoch is None or epoch < newest.epoch:
        return False
    # All events that were staged in an epoch are in the log before the next epoch begins.
    if epoch == newest.epoch and not progress.log_reaches(log, here.source, newest.lsn)[0]:
        return False
    return not queries.value(log, _MORE_EVENTS, vars(here))
