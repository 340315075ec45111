"""Whether a follower is past its copies: until then its tables are as of different moments."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.followers.applying.copied import Copied
from pipeline.followers.applying.position import Position
from pipeline.followers.applying.table_versions import Place
from pipeline.log.staging import progress
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_LAST = 2**31 - 1
_MORE_EVENTS = """\
select exists (select from pipeline.events e where e.seq > %(seq)s and e.source_database_id = %(source)s)
"""
"""Whether the log has events of a source after a seq."""


def outstanding(log: Connection, here: Position, made: Mapping[int, Copied | None]) -> dict[int, Copied]:
    """The copies, by oid, that may contain events from this position on."""
    found = {oid: copied for oid, copied in made.items() if copied is not None and not _is_behind(here, copied.place)}
    return found if found and not _at_the_end(log, here, max(copied.place for copied in found.values())) else {}


def reaches(log: Connection, here: Position, place: Place) -> bool:
    """True if everything is applied that comes before a place."""
    return _is_behind(here, place) or _at_the_end(log, here, place)


def _is_behind(here: Position, place: Place) -> bool:
    return place <= Place(here.source_epoch, here.commit_lsn or 0, _LAST)


def _at_the_end(log: Connection, here: Position, newest: Place) -> bool:
    """Whether nothing comes before this place, as the log has nothing after the position that could: in a source at
    rest.
    """
    epoch = queries.value(log, statement("followers.copying", "source_epoch"), {"source": here.source})
    if epoch is None or epoch < newest.epoch:
        return False
    # What was staged in an epoch is in the log before the next one begins.
    if epoch == newest.epoch and not progress.log_reaches(log, here.source, newest.lsn)[0]:
        return False
    return not queries.value(log, _MORE_EVENTS, vars(here))
