"""Where a follower begins in the log, which tables it takes, and up to where events only say what a row is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pipeline.followers.applying.followed_tables import Wanted
from pipeline.followers.applying.position import Position
from pipeline.followers.registry import Follower
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_NOT_YET = 2**63 - 1
_ROOM = "followers.running"


@dataclass(frozen=True)
class Place:
    """Where an event is in the log."""

    source_epoch: int
    commit_lsn: int | None
    committed_at: datetime | None


def first_position(log: Connection, found: Follower) -> Position:
    """After the seq that is stored of it. Its transaction decides which form the tables have there."""
    place = queries.one(log, Place, statement(_ROOM, "place_of_seq"), {"seq": found.seq}) or Place(0, None, None)
    return Position(found.source_id, found.name, place.source_epoch, found.seq, place.commit_lsn, place.committed_at)


def wanted_tables(log: Connection, found: Follower) -> dict[int, Wanted]:
    """By oid. Of one that began from the log, a table may lack rows until it has been read (`pipeline.snapshots`)."""
    complete = dict[int, int | None]()
    if found.copy == "log":
        complete = dict(log.execute(statement(_ROOM, "complete_seqs"), {"source": found.source_id}))
    return {
        each.table_oid: Wanted(
            each.table_schema, each.table_name, filled_upto=complete.get(each.table_oid, 0) or _NOT_YET
        )
        if found.copy == "log"
        else Wanted(each.table_schema, each.table_name)
        for each in found.table_states
    }
